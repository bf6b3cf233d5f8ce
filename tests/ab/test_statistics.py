from __future__ import annotations

import math

import pytest

from adaptive_sampling.ab.record import RunRecord
from adaptive_sampling.ab.statistics import (
    Interval,
    compare,
    mean_interval,
    t_cdf,
    t_quantile,
    token_ratio,
    tokens_to_target,
    verdict_text,
)


def run(arm: str, seed: int, losses: list[float], status: str = "finished", seconds: float = 10.0) -> RunRecord:
    curve = [
        {"step": k + 1, "tokens": 100 * 2**k, "loss": x, "losses": {"a": x, "b": x + 1.0}, "targets": {"a": 1, "b": 1}}
        for k, x in enumerate(losses)
    ]
    return RunRecord(arm, seed, "f", {}, status, curve=curve, train_seconds=seconds)  # type: ignore[arg-type]


# Two-sided 95 % and 99 % columns of the usual table.
@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 3, 3.182),
        (0.975, 4, 2.776),
        (0.975, 9, 2.262),
        (0.975, 30, 2.042),
        (0.975, 1000, 1.962),
        (0.995, 2, 9.925),
        (0.95, 5, 2.015),
    ],
)
def test_t_quantile_equals_the_table(probability: float, degrees: int, expected: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(expected, abs=5.1e-4)
    assert t_quantile(1.0 - probability, degrees) == pytest.approx(-expected, abs=5.1e-4)


def test_t_cdf_of_one_and_two_degrees_equals_the_closed_forms() -> None:
    for t in (-3.0, -0.4, 0.0, 0.7, 5.0):
        assert t_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-12)
        assert t_cdf(t, 2) == pytest.approx(0.5 + t / (2.0 * math.sqrt(2.0 + t * t)), abs=1e-12)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 2), (1.0, 2), (0.9, 0)])
def test_t_quantile_refuses_what_has_no_value(probability: float, degrees: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        t_quantile(probability, degrees)


def test_mean_interval_by_hand() -> None:
    interval = mean_interval([1.0, 2.0, 3.0])  # sd 1, half-width 4.302653/sqrt(3)
    assert interval.mean == 2.0
    assert interval.half_width == pytest.approx(4.302653 / math.sqrt(3.0), rel=1e-6)
    assert not interval.excludes_zero
    assert mean_interval([1.0]) == Interval(1.0, None, None, 1)
    assert mean_interval([0.1, 0.1, 0.1]) == Interval(0.1, 0.1, 0.1, 3)


def test_tokens_to_target_is_linear_in_the_logarithm() -> None:
    # Halfway in loss between 100 and 400 tokens: the geometric mean.
    assert tokens_to_target([100, 400], [3.0, 2.0], 2.5) == pytest.approx(200.0)
    assert tokens_to_target([100, 400], [3.0, 2.0], 2.0) == 400.0
    assert tokens_to_target([100, 400], [3.0, 2.0], 1.9) is None
    assert tokens_to_target([100, 400], [3.0, 2.0], 3.5) == 100.0
    assert tokens_to_target([100, 200, 400], [3.0, 2.0, 2.5], 2.25) == pytest.approx(100 * 2**0.75)


def test_token_ratio_is_symmetric_and_always_there() -> None:
    better, worse = run("x", 0, [4.0, 2.0, 1.0]), run("y", 0, [4.0, 3.0, 2.0])
    assert token_ratio(better, worse) == pytest.approx(0.5)
    assert token_ratio(worse, better) == pytest.approx(2.0)


def test_compare_of_equal_runs_is_exactly_zero() -> None:
    runs = [run("u", seed, [4.0, 3.1, 2.7 + 0.1 * seed]) for seed in range(3)]
    result = compare([run("v", r.seed, r.losses) for r in runs], runs)
    assert result.loss_difference == Interval(0.0, 0.0, 0.0, 3)
    assert result.token_change == Interval(0.0, 0.0, 0.0, 3)
    assert result.verdict == "no difference seen (0 to 0 %)"


def test_compare_pairs_by_seed() -> None:
    base = [run("u", seed, [5.0 + seed, 4.0 + seed, 3.0 + seed]) for seed in range(3)]
    arm = [run("v", seed, [4.5 + seed, 3.0 + seed, 2.0 + seed]) for seed in (2, 0, 1)]
    result = compare(arm, base)
    assert result.seeds == (0, 1, 2)
    assert result.loss_difference == Interval(-1.0, -1.0, -1.0, 3)
    assert result.source_differences["b"].mean == -1.0
    assert result.token_change is not None
    assert result.token_change.mean == pytest.approx(-0.5)
    assert result.not_reached == ()
    assert result.verdict == "50 % fewer tokens (50 to 50)"


def test_compare_counts_seeds_that_never_reach_the_loss() -> None:
    base = [run("u", seed, [5.0, 4.0, 3.0]) for seed in range(3)]
    result = compare([run("v", seed, [5.5, 4.5, 4.0]) for seed in range(3)], base)
    assert result.not_reached == (0, 1, 2)
    assert result.verdict == "100 % more tokens (100 to 100)"


def test_compare_leaves_out_and_names_what_did_not_finish() -> None:
    base = [run("u", seed, [5.0, 4.0, 3.0]) for seed in range(3)]
    arm = [run("v", 0, [5.0, 4.0, 3.0]), run("v", 1, [5.0], "diverged"), run("v", 2, [5.0, 4.0, 3.0])]
    result = compare(arm, base)
    assert (result.seeds, result.missing) == ((0, 2), (1,))
    assert result.verdict == "preliminary, 2 seeds: no difference seen (0 to 0 %); 1 seed without a finished pair"
    assert compare([run("v", 0, [], "failed")], base).verdict == "no pair of runs finished"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Interval(-0.31, -0.38, -0.24, 3), "31 % fewer tokens (24 to 38)"),
        (Interval(0.12, 0.05, 0.2, 3), "12 % more tokens (5 to 20)"),
        (Interval(0.005, -0.02, 0.03, 3), "no difference seen (−2 to +3 %)"),
        (Interval(-0.2, -0.3, -0.1, 2), "preliminary, 2 seeds: 20 % fewer tokens (10 to 30)"),
        (Interval(-0.2, None, None, 1), "preliminary, 1 seed: 20 % fewer tokens"),
    ],
)
def test_verdict_text_says_it_in_words(change: Interval, words: str) -> None:
    assert verdict_text(change) == words
