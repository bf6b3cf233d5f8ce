"""When a change of weights counts, whoever looked ahead how far."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_sampling.sampling.stream import DrawStream

N, NUM_DRAWS = 50, 70


def make_stream(draws, block_size, seed=0, num_draws=NUM_DRAWS):
    stream = DrawStream(N, num_draws, draws, block_size)
    stream.seed = seed
    return stream


def train(stream, looks_ahead, changes, lag, steps, step_size=4):
    """A training that draws `looks_ahead[i]` steps ahead at step i and whose changes count `lag` steps later."""
    order = []
    for step in range(steps):
        end = stream.position + step_size
        stream.fill(end + min(looks_ahead[step % len(looks_ahead)], lag) * step_size)
        order += stream.ahead(stream.position)[:step_size].tolist()
        stream.advance(end)
        if step in changes:
            ids, values = changes[step]
            stream.schedule_weights(stream.position + lag * step_size, ids, values, "")
    return order


@settings(max_examples=80)
@given(
    st.sampled_from(["systematic", "multinomial"]),
    st.integers(1, 30),
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 50), st.integers(0, 10**6), max_size=6),
    st.integers(1, 6),
)
def test_order_does_not_depend_on_how_far_anybody_looked_ahead(draws, block_size, looks_ahead, seeds, lag):
    changes = {}
    for step, seed in seeds.items():
        rng = np.random.default_rng(seed)
        ids = None if seed % 3 == 0 else rng.choice(N, 5, replace=False)
        changes[step] = (ids, rng.gamma(1.0, size=N if ids is None else 5) * (seed % 5 > 0) + 0.1)
    expected = train(make_stream(draws, block_size), [0], changes, lag, 60)
    assert train(make_stream(draws, block_size), looks_ahead, changes, lag, 60) == expected


@pytest.mark.parametrize("draws", ["systematic", "multinomial"])
@pytest.mark.parametrize("block_size", [1, 3, 16, 5000])
def test_epochs_are_whole_however_many_blocks_are_drawn_at_once(draws, block_size):
    stream = make_stream(draws, block_size)
    for epoch in range(4):
        stream.fill((epoch + 1) * NUM_DRAWS)
        ids = stream.ahead(stream.position)[:NUM_DRAWS]
        stream.advance((epoch + 1) * NUM_DRAWS)
        assert len(ids) == NUM_DRAWS
        if draws == "systematic":
            assert set(np.bincount(ids, minlength=N)) <= {1, 2}


def test_a_change_now_counts_from_the_next_block_although_more_was_drawn():
    stream = make_stream("systematic", 2)
    for end in range(0, 30, 2):  # long enough that many blocks are drawn at once
        stream.fill(end)
    stream.fill(31)
    seen = stream.ahead(0).tolist()
    assert len(seen) == 32
    only = np.zeros(N, np.float32)
    only[9] = 1
    stream.set_weights(only)
    stream.fill(60)
    assert stream.ahead(0)[:32].tolist() == seen
    assert set(stream.ahead(32).tolist()) == {9}


def test_a_state_taken_between_blocks_drawn_at_once_goes_on_alike():
    stream = make_stream("systematic", 2, seed=4)
    for end in range(0, 40, 2):
        stream.fill(end)
    stream.advance(33)
    other = make_stream("systematic", 2)
    other.load_state_dict(stream.state_dict())
    for each in (stream, other):
        each.update_weights([3, 4], [5.0, 0.0])
        each.fill(200)
    assert stream.ahead(33).tolist() == other.ahead(33).tolist()


@pytest.mark.parametrize("block_size", [2, 8, 64])
@pytest.mark.parametrize("looks_ahead", [[0], [3, 1, 0, 4]])
@pytest.mark.parametrize("all_at_once", [False, True])
def test_changes_that_change_no_ticket_leave_the_order_as_it_is(block_size, looks_ahead, all_at_once):
    # As many draws as windows: claims are 1, and phases keep 2^-21 away from whole numbers.
    def run(changes, looks_ahead):
        return train(make_stream("systematic", block_size, num_draws=N), looks_ahead, changes, 4, 35)

    nearly = np.where(np.arange(N) % 2, 1, 1 + 1e-7)
    ids = None if all_at_once else np.arange(0, N, 3)
    changes = dict.fromkeys(range(0, 35, 3), (ids, nearly if ids is None else nearly[ids]))
    assert run(changes, looks_ahead) == run({}, [0])


def test_a_state_with_draws_set_aside_goes_on_alike():
    streams = [make_stream("systematic", 2, seed=4) for _ in range(2)]
    for end in range(0, 40, 2):
        streams[0].fill(end)
    streams[0].advance(33)
    streams[0].schedule_weights(44, [3], [1 + 1e-6], "")
    state = streams[0].state_dict()
    assert len(state["aside"])
    streams[1].load_state_dict(state)
    for each in streams:
        each.fill(200)
    assert streams[0].ahead(33).tolist() == streams[1].ahead(33).tolist()
