"""Any history of calls, interrupted at every point: the sampler goes on as if nothing had happened."""

import io
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_sampling import AdaptiveSampler

SIZE = 12
WEIGHT = st.one_of(st.just(0.0), st.floats(0.125, 64, width=32))
CALLS = st.one_of(
    st.tuples(st.just("draw"), st.integers(0, 30)),
    st.tuples(st.just("iterate"), st.integers(0, 12)),
    st.tuples(st.just("set"), st.lists(WEIGHT, min_size=SIZE, max_size=SIZE).filter(any)),
    st.tuples(st.just("update"), st.dictionaries(st.integers(1, SIZE - 1), WEIGHT, min_size=1, max_size=5)),
    st.tuples(st.just("schedule"), st.dictionaries(st.integers(1, SIZE - 1), WEIGHT, min_size=1, max_size=5)),
    st.tuples(st.just("epoch"), st.integers(0, 4)),
)


def apply(sampler, call):
    """Ids that the call yields. Window 0 keeps its weight, so that never all are zero."""
    name, value = call
    if name == "draw":
        return sampler.draw(value).tolist()
    if name == "iterate":
        return list(islice(iter(sampler), value))
    if name == "set":
        sampler.set_weights([1.0, *value[1:]])
    elif name == "update":
        sampler.update_weights(list(value), list(value.values()))
    elif name == "schedule":
        # Behind everything drawn and everything that waits already.
        sampler.schedule_weights(sampler.position + 64, list(value), list(value.values()))
    else:
        sampler.set_epoch(value)
    return []


def through_a_file(sampler, **settings):
    """Saved and loaded as a checkpoint is, into a sampler that was built with another seed."""
    file = io.BytesIO()
    torch.save(sampler.state_dict(), file)
    file.seek(0)
    resumed = AdaptiveSampler(SIZE, **settings)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    return resumed


@pytest.mark.parametrize("draws", ["systematic", "multinomial"])
@settings(max_examples=25)
@given(st.lists(CALLS, min_size=1, max_size=10), st.sampled_from([1, 9, 12, 50]), st.integers(1, 16))
def test_any_history_goes_on_from_its_state(draws, calls, num_draws, block_size):
    built = {"draws": draws, "num_draws": num_draws}
    unbroken = AdaptiveSampler(SIZE, seed=5, block_size=block_size, **built)
    broken = AdaptiveSampler(SIZE, seed=5, block_size=block_size, **built)
    assert apply(unbroken, ("draw", 1)) == apply(broken, ("draw", 1))
    for call in calls:
        broken = through_a_file(broken, **built)
        assert apply(broken, call) == apply(unbroken, call), call
        np.testing.assert_array_equal(broken.weights, unbroken.weights)
        assert (broken.epoch, broken.position, len(broken)) == (unbroken.epoch, unbroken.position, len(unbroken))
    assert through_a_file(broken, **built).draw(3 * num_draws).tolist() == unbroken.draw(3 * num_draws).tolist()


def test_saving_before_the_first_draw_changes_nothing():
    saved, other = AdaptiveSampler(SIZE, seed=5), AdaptiveSampler(SIZE, seed=5)
    saved.state_dict()
    for sampler in (saved, other):
        sampler.update_weights([1, 3], [0.0, 20.0])
    assert saved.draw(50).tolist() == other.draw(50).tolist()


@pytest.mark.parametrize("draws", ["systematic", "multinomial"])
@settings(max_examples=25)
@given(st.lists(CALLS, min_size=1, max_size=10), st.integers(1, 16))
def test_a_block_sees_one_version_of_the_weights_and_never_a_zero(draws, calls, block_size):
    sampler = AdaptiveSampler(SIZE, draws=draws, num_draws=20, block_size=block_size, seed=6)
    before = np.ones(SIZE, np.float32)
    for call in calls:
        if call[0] == "schedule":
            continue
        zero = np.flatnonzero((sampler.weights == 0) & (before == 0))
        held = set(sampler._stream.ahead(sampler.position).tolist())  # drawn before the latest change
        ids = set(apply(sampler, call))
        assert not ids & set(zero.tolist()) - held
        before = sampler.weights.copy()
