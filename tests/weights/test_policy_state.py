import io

import numpy as np
import pytest
import torch

from adaptive_sampling.errors import StateMismatchError
from adaptive_sampling.weights import Cosine, Linear, Piecewise, WeightPolicy

GROUPS = np.arange(60) % 7
NUM_UPDATES = 12


def make(**settings):
    defaults = {"groups": GROUPS, "scarcity": 1 + GROUPS, "warmup": 0.3, "cooldown": 0.2, "normalize_every": 4}
    return WeightPolicy(**{**defaults, **settings})


def run(policy, first, last):
    updates = []
    for number in range(first, last):
        rng = np.random.default_rng(number)
        values = rng.lognormal(1, 0.5, 20)
        values[0] = np.nan
        updates.append(policy.update(rng.integers(0, 60, 20), values, step=5 * (number + 1)))
    return updates


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("stop", range(NUM_UPDATES + 1))
@pytest.mark.parametrize("bind_first", [True, False])
def test_a_policy_restored_at_any_update_continues_bit_for_bit(stop, bind_first):
    unbroken = make()
    unbroken.bind(60, 1000)
    whole = run(unbroken, 0, NUM_UPDATES)
    head = make()
    head.bind(60, 1000)
    run(head, 0, stop)
    tail = make()
    if bind_first:
        tail.bind(60, 1000)
    tail.load_state_dict(through_a_file(head.state_dict()))
    for one, other in zip(run(tail, stop, NUM_UPDATES), whole[stop:], strict=True):
        np.testing.assert_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(tail.weights, unbroken.weights)
    np.testing.assert_array_equal(tail.scores, unbroken.scores)
    np.testing.assert_array_equal(tail.visits, unbroken.visits)
    assert tail.dropped == unbroken.dropped == NUM_UPDATES
    assert tail.explain(5) == unbroken.explain(5)


EVERY_SETTING = {
    "all of them": {
        "decay": 0.5,
        "power": Linear(0.5, 2.0),
        "clip": (0.1, 0.95),
        "shrinkage": 3.0,
        "gate": 0.7,
        "blend": Cosine(0.1, 0.6),
        "priors": 1.0 + GROUPS % 2,
        "floor": 0.2,
        "cap": Piecewise(((0, 3.0), (0.5, 2.0))),
        "warmup": 10,
        "cooldown": 0.1,
        "normalize_every": 3,
        "importance": Linear(0.0, 1.0),
        "scarcity_measure": "distance",
        "uniform": Linear(0.3, 0.0),
        "min_effective_size": 0.9,
        "auto_off": True,
    },
    "no groups": {"groups": None, "scarcity": None},
    "excluded windows": {"priors": np.where(GROUPS == 3, 0.0, 1.0)},
    "no shrinkage": {"shrinkage": 0.0},
    "many passes": {"normalize_every": 1, "decay": 0.0},
}


@pytest.mark.filterwarnings("ignore:`min_effective_size`")
@pytest.mark.parametrize("settings", EVERY_SETTING.values(), ids=EVERY_SETTING)
def test_with_any_settings_a_policy_restored_at_any_update_continues_bit_for_bit(settings):
    unbroken = make(**settings)
    unbroken.bind(60, 160)
    states = []
    for number in range(30):
        states.append(through_a_file(unbroken.state_dict()))
        run(unbroken, number, number + 1)
    whole = through_a_file(unbroken.state_dict())
    assert not torch.equal(states[20]["weights"], whole["weights"])
    for stop in range(0, 30, 3):
        tail = make(**settings)
        tail.load_state_dict(states[stop])
        run(tail, stop, 30)
        assert_equal_states(through_a_file(tail.state_dict()), whole)


def assert_equal_states(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, dict):
            assert_equal_states(value, other[name])
        elif isinstance(value, torch.Tensor):
            assert torch.equal(value, other[name]), name
        else:
            assert value == other[name], name


def test_state_holds_tensors_and_primitives_alone_and_does_not_follow_the_policy():
    policy = make(warmup=0, cooldown=0)
    run(policy, 0, 2)
    state = policy.state_dict()

    def leaves(value):
        if isinstance(value, dict):
            return [leaf for part in value.values() for leaf in leaves(part)]
        return [leaf for part in value for leaf in leaves(part)] if isinstance(value, list) else [value]

    assert {type(leaf) for leaf in leaves(state)} <= {torch.Tensor, int, float, str, bool, type(None)}
    before = {name: state[name].clone() for name in ("score", "visits", "weights")}
    run(policy, 2, 4)
    assert all(torch.equal(state[name], saved) for name, saved in before.items())


def test_a_restored_policy_does_not_change_the_state():
    policy = make(warmup=0, cooldown=0)
    run(policy, 0, 2)
    state = policy.state_dict()
    before = state["score"].clone()
    other = make(warmup=0, cooldown=0)
    other.load_state_dict(state)
    run(other, 2, 4)
    assert torch.equal(state["score"], before)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"decay": 0.8}, r"`decay` of the saved policy is 0\.9, here it is 0\.8.*WeightPolicy\(decay="),
        ({"clip": (0.0, 0.9)}, r"`clip`.*\[0\.05, 0\.9\].*\[0\.0, 0\.9\]"),
        ({"cap": 5.0}, r"`cap`.*4\.0.*5\.0"),
        ({"warmup": 3}, r"`warmup`.*0\.3.*3"),
        ({"scarcity": None}, r"`scarcity`.*None"),
        ({"groups": GROUPS[::-1]}, "`groups`"),
        ({"priors": 1 + GROUPS}, "`priors`"),
        ({"scarcity_measure": "distance"}, r"`scarcity_measure`.*'density'.*'distance'"),
    ],
)
def test_a_state_of_other_settings_is_refused_with_both_values(changed, message):
    saved = make()
    saved.bind(60, 100)
    policy = make(**changed)
    with pytest.raises(StateMismatchError, match=message):
        policy.load_state_dict(saved.state_dict())
    assert not policy.visits.any()


def test_a_state_of_another_number_of_windows_or_version_is_refused():
    saved = WeightPolicy()
    saved.bind(10)
    policy = WeightPolicy()
    policy.bind(11)
    with pytest.raises(StateMismatchError, match="10 windows, this one for 11"):
        policy.load_state_dict(saved.state_dict())
    with pytest.raises(StateMismatchError, match=r"version 99.*reads 2"):
        saved.load_state_dict({**saved.state_dict(), "version": 99})
    with pytest.raises(StateMismatchError, match=r"10 entries.*\(9,\)"):
        saved.load_state_dict({**saved.state_dict(), "score": torch.zeros(9)})


def test_another_length_of_training_is_adopted_with_a_warning():
    saved = make()
    saved.bind(60, 1000)
    run(saved, 0, 2)
    policy = make()
    policy.load_state_dict(saved.state_dict())
    assert policy.total_steps == 1000
    with pytest.warns(UserWarning, match="from 1000 to 2000 steps"):
        policy.bind(60, 2000)
    assert policy.total_steps == 2000
    late = make()
    late.bind(60, 2000)
    with pytest.warns(UserWarning, match="from 1000 to 2000 steps"):
        late.load_state_dict(saved.state_dict())
    without_ramps = make(warmup=0, cooldown=0)
    without_ramps.bind(60, 1000)
    run(without_ramps, 0, 2)
    without_ramps.bind(60, 2000)


def paths(state):
    """Where the entries of nested mappings are."""
    return [
        (key, *rest) for key, value in state.items() for rest in [(), *(paths(value) if type(value) is dict else [])]
    ]


def changed(state, path, value):
    """A copy of nested mappings with another value at `path`; `...`: with none."""
    key, *rest = path
    copy = dict(state)
    if rest:
        copy[key] = changed(copy[key], rest, value)
    elif value is ...:
        del copy[key]
    else:
        copy[key] = value
    return copy


def assert_refused_and_unchanged(state, signal, message):
    policy, twin = make(signal=signal), make(signal=signal)
    for each in (policy, twin):
        each.bind(60, 1000)
        run(each, 0, 2)
    with pytest.raises(StateMismatchError, match=message):
        policy.load_state_dict(state)
    run(policy, 2, 6), run(twin, 2, 6)
    np.testing.assert_array_equal(policy.weights, twin.weights)
    np.testing.assert_array_equal(policy.scores, twin.scores)


@pytest.mark.parametrize("signal", ["loss", "progress"])
def test_a_state_that_lacks_an_entry_is_refused_and_nothing_changes(signal):
    saved = make(signal=signal)
    saved.bind(60, 1000)
    run(saved, 0, 5)
    state = saved.state_dict()
    for path in paths(state):
        assert_refused_and_unchanged(changed(state, path, ...), signal, "saved policy")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            ("weights",),
            torch.full((60,), float("nan")),
            "`weights` of the saved policy must be finite.*got nan for window 0",
        ),
        (("weights",), -torch.ones(60), r"got -1\.0"),
        (("visits",), torch.full((60,), -1, dtype=torch.int32), "`visits`.*got -1 for window 0"),
        (("score",), torch.zeros(59), "60 entries per array"),
        (("frozen", "group_means"), None, "damaged"),
        (("drift",), 3, "none of \\['drift'\\]"),
    ],
)
def test_a_damaged_state_is_refused_naming_what_is_wrong(path, value, message):
    saved = make()
    saved.bind(60, 1000)
    run(saved, 0, 5)
    assert_refused_and_unchanged(changed(saved.state_dict(), path, value), "loss", message)


@pytest.mark.parametrize("state", [None, 5, []])
def test_what_is_no_state_is_refused(state):
    with pytest.raises(StateMismatchError, match="must be a mapping"):
        make().load_state_dict(state)
