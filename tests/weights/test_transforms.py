import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_sampling.weights import transforms

losses = st.floats(0, 1e6, allow_subnormal=False)


@given(st.lists(losses, min_size=1, max_size=30), st.sampled_from([0.0, 0.5, 0.9, 0.99]))
def test_ema_step_averages_evenly_until_the_decay_takes_over(values, decay):
    score = 0.0
    for visits, value in enumerate(values):
        expected = value if visits == 0 else score + max(1 - decay, 1 / (visits + 1)) * (value - score)
        score = float(transforms.ema_step([score], [visits], [value], decay)[0])
        assert score == pytest.approx(expected, rel=1e-12, abs=1e-9)
        if visits + 1 <= 1 / (1 - decay):
            assert score == pytest.approx(np.mean(values[: visits + 1]), rel=1e-9, abs=1e-9)


def test_ema_step_of_three_visits_by_hand():
    first = transforms.ema_step([0.0], [0], [4.0], 0.9)
    second = transforms.ema_step(first, [1], [2.0], 0.9)
    third = transforms.ema_step(second, [2], [3.0], 0.9)
    assert [first[0], second[0], third[0]] == pytest.approx([4, 3, 3])
    assert transforms.ema_step([3.0], [9], [13.0], 0.9)[0] == pytest.approx(4)
    assert transforms.ema_step([3.0], [500], [13.0], 0.9)[0] == pytest.approx(4)


@given(st.lists(st.tuples(losses, st.integers(0, 50), losses), min_size=1), st.sampled_from([0.0, 0.5, 2.0, 10.0]))
def test_shrink_is_the_formula_window_by_window(windows, kappa):
    score, visits, mean = map(np.array, zip(*windows, strict=True))
    result = transforms.shrink(score, visits, mean, kappa)
    for got, s, n, m in zip(result, score, visits, mean, strict=True):
        assert got == pytest.approx(m if n == 0 else (n * s + kappa * m) / (n + kappa), rel=1e-12, abs=1e-12)


@given(st.lists(losses, min_size=1, max_size=40), st.sampled_from([(0.0, 1.0), (0.05, 0.9), (0.0, 0.5)]))
def test_clip_quantiles_leaves_the_middle_alone(values, clip):
    array = np.array(values)
    low, high = np.quantile(array, clip)
    expected = [min(max(v, low), high) for v in values]
    np.testing.assert_array_equal(transforms.clip_quantiles(array, array, clip), expected)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30))
def test_to_positive_rises_and_ignores_shift_and_scale(values):
    array = np.sort(np.array(values))
    centre, spread = float(array.mean()), float(array.std())
    mapped = transforms.to_positive(array, centre, spread)
    assert (mapped > 0).all()
    assert (np.diff(mapped) >= 0).all()
    if spread > 1e-3:
        by_hand = [math.log1p(math.exp((v - centre) / spread)) for v in array]
        np.testing.assert_allclose(mapped, by_hand, rtol=1e-9)
        np.testing.assert_allclose(transforms.to_positive(4 * array - 7, 4 * centre - 7, 4 * spread), mapped, rtol=1e-6)


def test_to_positive_of_equal_values_is_equal_and_positive():
    np.testing.assert_allclose(transforms.to_positive([-2.0, -2.0], -2.0, 0.0), math.log(2))


def test_power_of_keeps_large_values_finite():
    np.testing.assert_allclose(transforms.power_of([1e38, 5e37], 4.0, 1e38), [1, 1 / 16])
    np.testing.assert_array_equal(transforms.power_of([0.0, 3.0], 0.0, 1.0), 1)


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0), (5, 0.25), (20, 1), (50, 1), (90, 1), (95, 0.5), (100, 0), (101, 0)]
)
def test_ramp_rises_holds_and_falls(step, expected):
    assert transforms.ramp(step, 20, 10, 100) == expected


def test_ramp_without_warm_up_or_end():
    assert transforms.ramp(0, 0, 0, None) == 1
    assert transforms.ramp(10**9, 10, 10, None) == 1
    assert transforms.ramp(50, 100, 100, 100) == 0.5


def slow_floor_cap(values, floor, cap):
    """Bisection on m by the definition; None where no m does it."""
    positive = [v for v in values if v > 0]
    if floor * (len(values) - len(positive)) + cap * len(positive) <= len(values):
        return None

    def mean(m):
        return sum(min(max(v / m, floor), cap) for v in values) / len(values)

    low, high = min(positive) / cap / 2, 2 * max(positive) * len(values)
    for _ in range(300):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (middle, high) if mean(middle) > 1 else (low, middle)
    return [min(max(v / low, floor), cap) for v in values]


weightings = st.lists(st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-6, 1e6)), min_size=1, max_size=40)


@settings(max_examples=300, deadline=None)
@given(weightings, st.sampled_from([0.0, 0.1, 0.5, 0.95]), st.sampled_from([1.0, 1.5, 4.0, 1e3]))
def test_floor_cap_is_slow_bisection(values, floor, cap):
    weights = transforms.floor_cap(values, floor, cap)
    assert weights.mean() == pytest.approx(1, rel=1e-12)
    assert weights.max() <= cap * (1 + 1e-12)
    assert weights.min() >= floor
    order = np.argsort(values, kind="stable")
    assert (np.diff(weights[order]) >= -1e-12).all()
    expected = slow_floor_cap(values, floor, cap)
    if expected is not None:
        np.testing.assert_allclose(weights, expected, rtol=1e-9)


def test_floor_cap_by_hand():
    np.testing.assert_allclose(transforms.floor_cap([0, 1, 10, 1], 0.1, 4.0), [0.1, 0.325, 3.25, 0.325], rtol=1e-14)
    assert transforms.solve_scale(np.array([0, 1, 10, 1.0]), 0.1, 4.0)[0] == pytest.approx(12 / 3.9)


def test_floor_cap_raises_the_floor_where_nearly_all_is_zero():
    weights = transforms.floor_cap(np.r_[1000.0, np.zeros(999)], 0.1, 4.0)
    assert weights[0] == 4
    np.testing.assert_allclose(weights[1:], (1000 - 4) / 999)


@pytest.mark.parametrize("value", [0.0, 1e-300, 3.0, 1e300])
@pytest.mark.parametrize("floor", [0.0, 0.1, 1.0])
def test_floor_cap_of_equal_values_is_one(value, floor):
    np.testing.assert_allclose(transforms.floor_cap([value] * 7, floor, 4.0), 1)


def test_floor_cap_without_cap():
    np.testing.assert_allclose(transforms.floor_cap([0, 0, 0, 8], 0.0, math.inf), [0, 0, 0, 4])
    np.testing.assert_allclose(transforms.floor_cap([0, 0, 0, 8], 0.5, math.inf), [0.5, 0.5, 0.5, 2.5])


def test_distance_blend_and_density_by_hand():
    learned = np.array([2.0, 1, 1]) / (4 / 3)
    scarcity = np.array([0.5, 1, 1.5])
    np.testing.assert_allclose(transforms.distance_blend(learned, scarcity, 1.0, 0.3), [1.2, 0.825, 0.975])
    np.testing.assert_allclose(transforms.density_combine(learned, scarcity, 2.0), [1.5, 1.5, 2.25])


def test_importance_by_hand():
    p = np.array([4, 2, 1, 1]) / 8
    corrected = transforms.importance(p, 1 / 4, 1.0)
    np.testing.assert_array_equal(corrected, [0.5, 1, 2, 2])
    assert p @ corrected == 1
    np.testing.assert_array_equal(transforms.importance(p, 1 / 4, 0.0), 1)
    np.testing.assert_allclose(transforms.importance(p, p, 0.7), 1)


def test_slices_of_floor_cap_are_reachable_by_limit():
    values = np.array([0, 1, 10, 1.0])
    scale, floor = transforms.solve_scale(values, 0.1, 4.0)
    np.testing.assert_array_equal(transforms.limit(values, scale, floor, 4.0), transforms.floor_cap(values, 0.1, 4.0))


signed = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(signed, st.floats(0, 10)), min_size=1), st.booleans())
def test_bring_forward_multiplies_losses_and_shifts_signed_scores(pairs, is_signed):
    score, movement = map(np.array, zip(*pairs, strict=True))
    moved = transforms.bring_forward(score, movement, signed=is_signed)
    assert moved.tolist() == [s + m if is_signed else s * m for s, m in pairs]


@given(st.lists(signed, min_size=1), st.floats(1e-3, 1.0), st.floats(1.0, 1e3), st.booleans())
def test_level_of_clips_and_takes_logarithms_of_what_is_not_signed(values, low, high, is_signed):
    levels = transforms.level_of(values, low, high, signed=is_signed)
    for level, value in zip(levels, values, strict=True):
        clipped = min(max(value, low), high)
        assert level == pytest.approx(clipped if is_signed else math.log(clipped), rel=1e-12, abs=1e-12)


shares = st.floats(0, 1)


@given(st.lists(st.tuples(st.floats(-2, 3), st.integers(0, 50), shares), min_size=1), st.floats(0.1, 10))
def test_learnable_share_is_the_formula_window_by_window(windows, kappa):
    own, visits, of_group = map(np.array, zip(*windows, strict=True))
    told = transforms.learnable_share(own, visits, of_group, kappa)
    for got, share, seen, group in zip(told, own, visits, of_group, strict=True):
        again = max(seen - 1, 0)
        expected = group * (min(max(share, 0), 1) * again + kappa) / (again + kappa)
        assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert got <= group * (1 + 1e-12)


@given(st.lists(signed, min_size=1), signed, st.one_of(st.just(0.0), st.floats(1e-3, 1e3)))
def test_below_threshold_is_the_logistic_of_the_distance(values, threshold, width):
    told = transforms.below_threshold(values, threshold, width)
    for got, value in zip(told, values, strict=True):
        if width == 0:
            expected = 1.0 if value <= threshold else 0.0
        else:
            expected = 1 / (1 + math.exp(min((value - threshold) / width, 700)))
        assert got == pytest.approx(expected, rel=1e-9, abs=1e-300)
    order = np.argsort(values)
    assert (np.diff(told[order]) <= 0).all()


@given(st.lists(st.floats(0, 100), min_size=1), shares)
def test_mix_uniform_is_the_formula_and_keeps_a_mean_of_one(values, share):
    mixed = transforms.mix_uniform(values, share)
    assert mixed.tolist() == pytest.approx([(1 - share) * v + share for v in values])
    if any(v > 1e-3 for v in values):
        even = np.array(values) / np.mean(values)
        assert transforms.mix_uniform(even, share).mean() == pytest.approx(1)


@given(st.lists(st.tuples(losses, st.floats(0, 10), st.floats(0, 10)), min_size=1), shares)
def test_density_and_distance_are_the_formulas_window_by_window(windows, blend):
    learned, scarcity, prior = map(np.array, zip(*windows, strict=True))
    multiplied = transforms.density_combine(learned, scarcity, prior)
    blended = transforms.distance_blend(learned, scarcity, prior, blend)
    for product, mix, s, q, r in zip(multiplied, blended, learned, scarcity, prior, strict=True):
        assert product == pytest.approx(s * q * r, rel=1e-12)
        assert mix == pytest.approx(((1 - blend) * s + blend * q) * r, rel=1e-9, abs=1e-12)


@given(st.lists(losses, min_size=1), st.floats(0, 4), st.floats(0.1, 1e6))
def test_power_of_is_the_formula_value_by_value(values, power, reference):
    told = transforms.power_of(values, power, reference)
    assert told.tolist() == pytest.approx([(v / reference) ** power for v in values], rel=1e-12)


@given(st.lists(st.tuples(st.floats(1e-6, 1), st.floats(1e-6, 1)), min_size=1), st.floats(0, 2))
def test_importance_is_the_formula_draw_by_draw(pairs, gamma):
    p, t = map(np.array, zip(*pairs, strict=True))
    assert transforms.importance(p, t, gamma).tolist() == pytest.approx([(b / a) ** gamma for a, b in pairs], rel=1e-9)


@given(st.integers(0, 300), st.integers(0, 100), st.integers(0, 100), st.integers(1, 250))
def test_ramp_is_the_lower_of_rise_and_fall(step, warmup, cooldown, total):
    rise = 1.0 if warmup == 0 else min(step / warmup, 1)
    fall = 1.0 if cooldown == 0 else min(max((total - step) / cooldown, 0), 1)
    assert transforms.ramp(step, warmup, cooldown, total) == min(rise, fall)


def test_uniform_share_of_even_weights_is_none():
    assert transforms.uniform_share(1.0, 1.0) == 0
    assert transforms.uniform_share(4.0, 0.0) == 0
    assert transforms.uniform_share(4.0, 0.25) == 0
    assert transforms.uniform_share(4.0, 1.0) == 1


def test_floor_cap_and_clip_quantiles_name_what_they_cannot_take():
    for bad in (float("nan"), float("inf"), -2.0):
        with pytest.raises(ValueError, match=f"`values` must be finite and not negative, got {bad} at position 1"):
            transforms.floor_cap([1.0, bad], 0.1, 4.0)
    for floor, cap in ((-0.1, 4), (1.1, 4), (0.1, 0.9), (1, 1), (float("nan"), 4)):
        with pytest.raises(ValueError, match=f"got {floor} and {cap}"):
            transforms.floor_cap([1.0, 2.0], floor, cap)
    with pytest.raises(ValueError, match="`of` must hold at least one value"):
        transforms.clip_quantiles([1.0], [], (0, 1))
