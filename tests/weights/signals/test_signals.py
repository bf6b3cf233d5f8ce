"""A contract for every exported signal, and what each of them says."""

import copy

import numpy as np
import pytest
import torch

import adaptive_sampling.weights as weights
from adaptive_sampling.errors import StateMismatchError
from adaptive_sampling.weights import (
    BaseSignal,
    CombinedSignal,
    CurriculumSignal,
    ExcessLossSignal,
    Linear,
    LogLossSignal,
    LossSignal,
    Observed,
    ProgressSignal,
    Signal,
    UncertaintySignal,
    WeightPolicy,
)

N = 60
GROUPS = np.arange(N) % 5
WAYS = {
    "LossSignal": LossSignal,
    "LogLossSignal": LogLossSignal,
    "UncertaintySignal": UncertaintySignal,
    "ProgressSignal": ProgressSignal,
    "ExcessLossSignal": lambda: ExcessLossSignal(np.linspace(1, 3, N)),
    "CurriculumSignal": lambda: CurriculumSignal(np.arange(N)),
    "CombinedSignal": lambda: CombinedSignal({"loss": 1.0, "progress": 5.0, "uncertainty": 0.5}),
}
OBSERVED_CURRICULUM = {"curriculum of a loss": lambda: CurriculumSignal(LossSignal(), threshold=0.5)}


def policy_of(make, **settings):
    policy = WeightPolicy(
        make(), **{"groups": GROUPS, "warmup": 0.2, "cooldown": 0.1, "normalize_every": 3, **settings}
    )
    policy.bind(N, 200)
    return policy


def feed(policy, first, last):
    updates = []
    for number in range(first, last):
        rng = np.random.default_rng(number)
        ids = rng.integers(0, N, 16)
        captured = {name: rng.lognormal(1 - number / 20, 0.3, 16) for name in policy.needs}
        captured[policy.needs[0]][0] = np.nan
        updates.append(policy.update(ids, captured, step=10 * (number + 1)))
    return updates


def test_every_exported_signal_is_in_the_contract():
    exported = {name for name in weights.__all__ if name.endswith("Signal")} - {"Signal", "BaseSignal"}
    assert exported == set(WAYS)


@pytest.mark.parametrize("name", [*WAYS, *OBSERVED_CURRICULUM])
def test_a_signal_keeps_the_contract(name):
    make = {**WAYS, **OBSERVED_CURRICULUM}[name]
    signal = make()
    assert isinstance(signal, Signal)
    assert signal.name
    assert set(signal.needs) <= {"loss", "entropy"}
    assert len(signal.needs) == len(set(signal.needs)) > 0
    signal.bind(N, 5)
    ids = np.array([2, 7, 9])
    observed = Observed(ids, GROUPS[ids], {need: np.array([1.0, 2.0, 4.0]) for need in signal.needs})
    values = signal.values(observed)
    assert values.shape == (3,)
    assert values.dtype == np.float64
    assert np.isfinite(values).all()
    assert signal.signed or (values >= 0).all()
    before = copy.deepcopy(signal.state_dict())
    if name != "CurriculumSignal":
        bad = Observed(ids, GROUPS[ids], {need: np.array([1.0, -5.0, 4.0]) for need in signal.needs})
        with pytest.raises(ValueError, match=r"got -5\.0 for window 7"):
            signal.values(bad)
    np.testing.assert_equal(plain(signal.state_dict()), plain(before))


def plain(state):
    if isinstance(state, dict):
        return {name: plain(value) for name, value in state.items()}
    return state.tolist() if isinstance(state, torch.Tensor) else state


@pytest.mark.parametrize("name", [*WAYS, *OBSERVED_CURRICULUM])
@pytest.mark.parametrize("groups", [GROUPS, None])
@pytest.mark.parametrize("stop", [0, 1, 4, 7])
def test_a_policy_with_any_signal_continues_bit_for_bit(name, groups, stop):
    make = {**WAYS, **OBSERVED_CURRICULUM}[name]
    unbroken, head, tail = (policy_of(make, groups=groups) for _ in range(3))
    whole = feed(unbroken, 0, 10)
    feed(head, 0, stop)
    tail.load_state_dict(head.state_dict())
    for one, other in zip(feed(tail, stop, 10), whole[stop:], strict=True):
        np.testing.assert_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_equal(plain(tail.state_dict()), plain(unbroken.state_dict()))
    assert np.isfinite(unbroken.weights).all()
    assert unbroken.weights.mean() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("name", [*WAYS, *OBSERVED_CURRICULUM])
def test_factors_multiply_out_to_the_weight_with_any_signal(name):
    policy = policy_of({**WAYS, **OBSERVED_CURRICULUM}[name], uniform=0.2, floor=0.4, cap=1.5)
    feed(policy, 0, 9)
    policy.update([], {need: [] for need in policy.needs}, step=100)
    for i in range(N):
        told = policy.explain(i)
        product = told["combined"] * told["scale"] * told["limit_factor"] * told["uniform_factor"]
        assert product == pytest.approx(told["weight"], rel=1e-6)
        assert told["learned"] == pytest.approx(1 + told["ramp"] * (told["relative"] - 1))


def test_names_and_instances_are_the_same_and_policies_share_no_memory():
    signal = ProgressSignal()
    by_name, by_instance = WeightPolicy("progress", groups=GROUPS), WeightPolicy(signal, groups=GROUPS)
    for policy in (by_name, by_instance):
        policy.bind(N, 200)
        feed(policy, 0, 4)
    np.testing.assert_array_equal(by_name.weights, by_instance.weights)
    assert len(signal.state_dict()["count"]) == 0


def test_log_loss_and_uncertainty_by_hand():
    policy = policy_of(LogLossSignal)
    policy.update([3, 3], [1.0, 3.0])
    assert policy.scores[3] == pytest.approx(np.log(3.0))
    policy = policy_of(UncertaintySignal)
    assert policy.needs == ("entropy",)
    policy.update([3], {"entropy": [1.5]})
    assert policy.scores[3] == 1.5
    with pytest.raises(ValueError, match=r"`values` must hold \['entropy'\].*got \['loss'\]"):
        policy.update([3], {"loss": [1.5]})


def test_progress_is_positive_where_the_loss_falls_and_zero_where_it_does_not():
    signal = ProgressSignal(fast=4, slow=16)
    signal.bind(40, 2)
    groups = np.arange(40) // 20
    for step in range(30):
        losses = np.where(groups == 0, 8 - step / 10, 7.0)
        values = signal.values(Observed(np.arange(40), groups, {"loss": losses}))
    assert (values[groups == 0] > 0.03).all()
    np.testing.assert_allclose(values[groups == 1], 0, atol=1e-12)


def test_progress_is_two_running_means_by_hand():
    signal = ProgressSignal(fast=1, slow=2)
    signal.bind(3, None)
    said = [signal.values(Observed(np.array([1]), np.array([1]), {"loss": np.array([x])}))[0] for x in (4.0, 2.0, 2.0)]
    # fast: 4, 2, 2; slow: 4, (4+2)/2 = 3, 3 + (2 − 3)/2 = 2.5
    np.testing.assert_allclose(said, [0, 1, 0.5])


def test_excess_loss_prefers_what_the_reference_knows():
    reference = np.where(np.arange(N) < 30, 1.0, 6.0)
    policy = WeightPolicy(ExcessLossSignal(reference), warmup=0, cooldown=0, clip=(0, 1))
    policy.update(np.arange(N), np.full(N, 6.0))
    assert policy.scores[[0, 40]].tolist() == [5.0, 0.0]
    assert policy.weights[0] > 1.5 * policy.weights[40]


def test_a_curriculum_moves_from_easy_to_all():
    policy = WeightPolicy(
        CurriculumSignal(np.arange(100), Linear(0.2, 1.0, end=50)), warmup=0, cooldown=0, floor=0.0, normalize_every=1
    )
    policy.bind(100, 100)
    shares = []
    for step in (1, 25, 50):
        policy.update([5], [1.0], step=step)
        shares.append(policy.weights[50:].sum() / policy.weights.sum())
        assert (np.diff(policy.weights) <= 0).all()
    assert shares[0] < 0.05
    assert shares == sorted(shares)
    assert policy.weights[-1] == pytest.approx(policy.weights[0], rel=0.6)


def test_a_combination_is_the_weighted_sum():
    signal = CombinedSignal({"loss": 2.0, UncertaintySignal(): -1.0})
    assert signal.needs == ("loss", "entropy")
    assert signal.signed
    ids = np.array([0, 1])
    values = signal.values(Observed(ids, ids, {"loss": np.array([3.0, 1.0]), "entropy": np.array([1.0, 4.0])}))
    assert values.tolist() == [5.0, -2.0]
    policy = WeightPolicy(signal, warmup=0, cooldown=0)
    policy.update([0, 1, 1], {"loss": [3.0, 1.0, np.nan], "entropy": [1.0, 4.0, 4.0]})
    assert policy.scores.tolist() == [5.0, -2.0]
    assert policy.dropped == 1
    with pytest.raises(ValueError, match=r"must be a mapping with \['loss', 'entropy'\]"):
        policy.update([0], [1.0])
    with pytest.raises(ValueError, match=r"must hold \['loss', 'entropy'\].*Capture \['entropy'\]"):
        policy.update([0], {"loss": [1.0]})


class Wrong(BaseSignal):
    name = "wrong"

    def __init__(self, values):
        self.answer = values

    def values(self, observed):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (
            np.ones((2, 1)),
            ValueError,
            r"'wrong' must give one value per window, shape \(2,\), got \(2, 1\).*Wrong.values",
        ),
        (np.ones(3), ValueError, r"shape \(2,\), got \(3,\)"),
        (1.0, ValueError, r"got \(\)"),
        (np.array(["a", "b"]), TypeError, "real numbers"),
        (np.array([1.0, -1.0]), ValueError, r"must not be negative, got -1\.0. Set `signed`"),
    ],
)
def test_a_signal_of_a_wrong_shape_is_refused_at_its_first_update(answer, error, message):
    policy = WeightPolicy(Wrong(answer), warmup=0, cooldown=0)
    policy.bind(4)
    with pytest.raises(error, match=message):
        policy.update([0, 2], [1.0, 2.0])
    assert not policy.visits.any()


def test_what_a_signal_makes_not_finite_is_dropped():
    policy = WeightPolicy(Wrong(np.array([np.inf, 2.0])), warmup=0, cooldown=0)
    policy.bind(4)
    policy.update([0, 2], [1.0, 2.0])
    assert policy.dropped == 1
    assert policy.visits.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: WeightPolicy("loud"), ValueError, "`signal` must be one of .*'log_loss'.* got 'loud'"),
        (
            lambda: WeightPolicy("excess"),
            ValueError,
            r"must be an instance for 'excess'.*ExcessLossSignal\(reference\)",
        ),
        (lambda: WeightPolicy(LossSignal), TypeError, "being an instance"),
        (lambda: WeightPolicy(object()), TypeError, "without .*'values'.*BaseSignal"),
        (
            lambda: ExcessLossSignal([1.0, np.nan, np.inf]),
            ValueError,
            r"`reference` must be finite, got nan for window 1 and 2",
        ),
        (lambda: ExcessLossSignal([[1.0]]), ValueError, "`reference` must be one-dimensional"),
        (lambda: CurriculumSignal([1.0, np.inf]), ValueError, "`difficulty` must be finite, got inf for window 1"),
        (lambda: CurriculumSignal([1.0], 1.5), ValueError, r"`threshold` must be .*got 1\.5"),
        (lambda: CurriculumSignal([1.0], "0.5"), ValueError, "`threshold` must be .*got '0.5'"),
        (lambda: CurriculumSignal(CurriculumSignal([1.0])), ValueError, "no curriculum itself"),
        (lambda: CombinedSignal({}), ValueError, "`parts` must be a mapping"),
        (lambda: CombinedSignal({"loss": np.nan}), ValueError, "`parts` must be finite weights, got nan"),
        (lambda: CombinedSignal({"loss": 0.0}), ValueError, "other than 0"),
        (lambda: CombinedSignal({"loss": 1.0, LossSignal(): 1.0}), ValueError, "'loss' twice"),
        (lambda: CombinedSignal({CurriculumSignal([1.0]): 1.0}), ValueError, "no curriculum"),
        (lambda: ProgressSignal(fast=0.5), ValueError, r"`fast` must be .*got 0\.5"),
        (lambda: ProgressSignal(fast=9, slow=9), ValueError, "`fast` must be below `slow`, got 9 and 9"),
        (lambda: WeightPolicy(ProgressSignal(fast=9), warmup=0).bind(3), ValueError, "`fast` must be below `slow`"),
    ],
)
def test_bad_signals_are_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("make", [lambda: ExcessLossSignal(np.ones(9)), lambda: CurriculumSignal(np.ones(9))])
def test_a_signal_for_another_number_of_windows_is_refused(make):
    with pytest.raises(ValueError, match=r"\(10\), got 9"):
        WeightPolicy(make()).bind(10)
    with pytest.raises(ValueError, match=r"\(3\), got 9"):
        WeightPolicy(make(), groups=[0, 1, 1])


def test_states_of_other_signals_are_refused():
    saved = policy_of(LossSignal)
    with pytest.raises(StateMismatchError, match=r"`signal`.*'loss'.*'progress'"):
        policy_of(ProgressSignal).load_state_dict(saved.state_dict())
    saved = policy_of(WAYS["ExcessLossSignal"])
    with pytest.raises(StateMismatchError, match="`signal`"):
        policy_of(lambda: ExcessLossSignal(np.ones(N))).load_state_dict(saved.state_dict())
