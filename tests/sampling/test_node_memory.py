"""Streams that share one memory, each at its own pace, draw what a stream alone draws; here all in one process."""

import itertools
import os
import secrets

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_sampling.sampling import _node_memory
from adaptive_sampling.sampling import stream as stream_module
from adaptive_sampling.sampling._node_memory import NodeMemory
from adaptive_sampling.sampling.stream import DrawStream

N, NUM_DRAWS, STEP, LAG = 70, 90, 4, 3
TOKENS = itertools.count(secrets.randbits(40))


def make_stream(draws="systematic", block_size=6, **settings):
    stream = DrawStream(settings.get("num_windows", N), settings.get("num_draws", NUM_DRAWS), draws, block_size)
    stream.seed = 0
    return stream


def share(streams):
    token = next(TOKENS)
    memories = [stream.share(token) for stream in streams]
    for memory in memories:
        memory.forget_name()
    return memories


def act(stream, action):
    kind, seed = action
    rng = np.random.default_rng(seed)
    ids = None if kind == "set" or seed % 3 == 0 else rng.choice(N, 5, replace=False)
    values = rng.gamma(1.0, size=N if ids is None else 5) * (seed % 5 > 0) + 0.1
    if kind == "schedule":
        stream.schedule_weights(stream.position + LAG * STEP, ids, values, "")
    elif kind == "jump":
        stream.jump(stream.position // NUM_DRAWS + seed % 3)
    elif ids is None:
        stream.set_weights(values)
    else:
        stream.update_weights(ids, values)


def train(stream, program, look_ahead, order):
    """Consume a step, act, and so on; gives way after each, and says whether all must meet before it goes on."""
    for step, action in enumerate(program):
        end = stream.position + STEP
        stream.fill(end + look_ahead[step % len(look_ahead)] * STEP)
        order += stream.ahead(stream.position)[:STEP].tolist()
        stream.advance(end)
        yield False
        if action is not None:
            yield action[0] == "jump"
            act(stream, action)
            yield False


def run_alone(stream, program):
    order = []
    for _ in train(stream, program, [0], order):
        pass
    return order


def run_together(streams, program, look_aheads, chance):
    """Each stream goes on for a while when chance picks it; the orders that they see."""
    rng = np.random.default_rng(chance)
    orders = [[] for _ in streams]
    runs = {i: train(stream, program, look_aheads[i], orders[i]) for i, stream in enumerate(streams)}
    waiting = set()
    while runs:
        able = sorted(set(runs) - waiting)
        if not able:
            waiting.clear()  # all have met
            continue
        i = rng.choice(able)
        for meets in itertools.islice(runs[i], int(rng.geometric(0.15))):
            if meets:
                waiting.add(i)
                break
        if i not in waiting and runs[i].gi_frame is None:
            del runs[i]
    return orders


RARELY = st.none() | st.none() | st.none() | st.none()
ACTIONS = st.tuples(st.sampled_from(["schedule", "set", "update", "jump"]), st.integers(0, 10**6))
PROGRAMS = st.lists(RARELY | ACTIONS, min_size=25, max_size=60)


@settings(max_examples=40)
@given(
    st.sampled_from(["systematic", "multinomial"]), st.integers(1, 12), PROGRAMS, st.integers(2, 4), st.integers(0, 99)
)
def test_ranks_at_any_pace_draw_what_one_alone_draws(draws, block_size, program, num_ranks, chance):
    expected = run_alone(make_stream(draws, block_size), program)
    streams = [make_stream(draws, block_size) for _ in range(num_ranks)]
    share(streams)
    for order in run_together(streams, program, [[0]] * num_ranks, chance):
        assert order == expected


@settings(max_examples=40)
@given(
    st.sampled_from(["systematic", "multinomial"]),
    st.integers(1, 12),
    st.lists(RARELY | st.integers(0, 10**6), min_size=25, max_size=60),
    st.lists(st.lists(st.integers(0, LAG), min_size=1, max_size=4), min_size=2, max_size=4),
    st.integers(0, 99),
)
def test_ranks_may_look_ahead_as_far_as_the_lag(draws, block_size, seeds, look_aheads, chance):
    program = [None if seed is None else ("schedule", seed) for seed in seeds]
    expected = run_alone(make_stream(draws, block_size), program)
    streams = [make_stream(draws, block_size) for _ in look_aheads]
    share(streams)
    for order in run_together(streams, program, look_aheads, chance):
        assert order == expected


def two_that_drew(end, block_size=2):
    """A stream alone and two that share; block for block, so that many blocks are drawn at once by now."""
    streams = [make_stream(block_size=block_size) for _ in range(3)]
    share(streams[1:])
    for stream in streams:
        for position in range(0, end + 1, block_size):
            stream.fill(position)
    return streams


def only(window):
    weights = np.zeros(N, np.float32)
    weights[window] = 1
    return weights


def test_what_a_rank_draws_without_knowing_of_a_change_is_taken_back():
    alone, knows, unaware = two_that_drew(30)
    alone.schedule_weights(34, None, only(9), "")
    knows.schedule_weights(34, None, only(9), "")
    unaware.fill(33)
    assert unaware._ahead.ids_from + len(unaware._ahead.ids) > 34
    for stream in (alone, knows, unaware):
        stream.fill(50)
        assert set(stream.ahead(34).tolist()) == {9}
        assert stream.ahead(0).tolist() == alone.ahead(0).tolist()


def test_a_rank_that_saw_too_much_is_found_out_by_the_one_that_knows_of_the_change():
    _, knows, unaware = two_that_drew(30)
    knows.schedule_weights(34, None, only(9), "")
    unaware.fill(35)
    with pytest.raises(RuntimeError, match="position 34 come too late: another rank has looked ahead to 36"):
        knows.fill(40)
    with pytest.raises(RuntimeError, match=r"position 34 come too late: a block was drawn at 34\. Cure"):
        unaware.schedule_weights(34, None, only(9), "Cure")


def test_a_rank_too_far_behind_is_refused_with_both_places(monkeypatch):
    monkeypatch.setattr(stream_module, "_RING_LENGTH", 64)
    alone, fast, slow = two_that_drew(10)
    fast.fill(60)
    slow.fill(12)  # all is kept from the start on
    alone.fill(60)
    assert slow.ahead(0).tolist() == alone.ahead(0).tolist()
    fast.fill(150)
    with pytest.raises(
        RuntimeError, match=r"at draw 60, but another one of its node at 1\d\d, .* last 64 draws are kept"
    ):
        slow.fill(62)
    with pytest.raises(RuntimeError, match="at draw 60"):
        slow.set_weights(only(3))
    assert fast.weights[5] == 1


def test_weights_set_before_the_first_draw_are_set_once_whoever_draws_first():
    alone, first, second = make_stream(), make_stream(), make_stream()
    for stream in (alone, first, second):
        stream.update_weights([3], [7.0])
    share([first, second])
    for stream in (alone, first):
        stream.set_weights(np.arange(N))
        stream.fill(40)
    first.update_weights([1], [900.0])
    second.set_weights(np.arange(N))
    second.fill(40)
    assert second.ahead(0).tolist() == first.ahead(0).tolist() == alone.ahead(0).tolist()
    assert second.weights[1] == 900
    second.update_weights([1], [900.0])
    assert second.weights.tolist() == first.weights.tolist()


@pytest.mark.parametrize("made", [0, 1, 2])
def test_a_state_of_a_slow_rank_does_not_repeat_what_a_fast_one_did(made):
    changes = [(34, [3, 4], [9.0, 0.5]), (40, None, only(9) + 0.1)]
    alone, fast, slow = two_that_drew(30)
    for stream in (alone, fast, slow):
        stream.advance(28)
    for change in changes:
        alone.schedule_weights(*change, "")
        fast.schedule_weights(*change, "")
    for change in changes[:made]:
        slow.schedule_weights(*change, "")
    fast.fill(60)
    state = slow.state_dict()
    resumed = [make_stream(block_size=3), make_stream(block_size=3)]
    share(resumed)
    single = make_stream()
    for stream in [*resumed, single]:
        stream.load_state_dict(state)
        for change in changes[made:]:
            stream.schedule_weights(*change, "")
    alone.fill(85)
    alone.update_weights([5], [3.0])
    alone.fill(120)
    for stream in [*resumed, single]:
        stream.fill(85)
        stream.update_weights([5], [3.0])
        stream.fill(120)
        assert stream.ahead(28).tolist() == alone.ahead(28).tolist()


def test_streams_that_drew_before_they_met_go_on_alike():
    alone, first, second = (make_stream(block_size=2) for _ in range(3))
    for stream in (alone, first, second):
        for end in range(0, 31, 2):
            stream.fill(end)
        stream.schedule_weights(34, [3], [8.0], "")
    share([first, second])
    for stream in (alone, second, first):
        stream.fill(130)
    assert first.ahead(0).tolist() == second.ahead(0).tolist() == alone.ahead(0).tolist()


def test_unequal_samplers_are_refused():
    token = next(TOKENS)
    memory = make_stream().share(token)
    try:
        with pytest.raises(ValueError, match="equal samplers on all ranks"):
            make_stream(block_size=7).share(token)
        with pytest.raises(ValueError, match=rf"got \d+ bytes here and {memory.num_bytes} on another"):
            make_stream(num_windows=1000).share(token)
        if not memory.path.exists():
            memory = make_stream().share(token)
    finally:
        memory.forget_name()


def test_a_change_that_was_broken_off_is_not_built_upon():
    _, first, second = two_that_drew(10)
    first._ahead.engine.update_weights = None  # the rank stops in the middle of a change
    with pytest.raises(TypeError):
        first.update_weights([3], [2.0])
    for call in (lambda: second.fill(100), lambda: second.update_weights([3], [2.0])):
        with pytest.raises(RuntimeError, match=r"stopped while it changed the draws .* last checkpoint"):
            call()


def test_a_refused_change_breaks_nothing():
    alone, first, second = two_that_drew(10)
    for stream in (first, second):
        with pytest.raises(ValueError, match="would make all weights zero"):
            stream.update_weights(np.arange(N), np.zeros(N))
    for stream in (alone, first, second):
        stream.update_weights([2], [5.0])
        stream.fill(100)
    assert first.ahead(0).tolist() == second.ahead(0).tolist() == alone.ahead(0).tolist()


@pytest.mark.parametrize("draws, least, most", [("systematic", 12, 13), ("multinomial", 4, 5)])
def test_arrays_take_the_bytes_that_are_promised_and_fit_exactly(monkeypatch, draws, least, most):
    monkeypatch.setattr(stream_module, "_RING_LENGTH", 64)
    size = 200_000
    stream = make_stream(draws, num_windows=size, num_draws=size)
    (memory,) = share([stream])
    assert least * size < memory.num_bytes < most * size
    stream.fill(1)
    end = memory.allocator()(memory.num_bytes - memory._arrays_from, np.uint8)
    assert not end[-64 - 8 :].all()
    with pytest.raises(ValueError):
        memory.allocator()(memory.num_bytes - memory._arrays_from + 1, np.uint8)


def test_no_room_is_an_error_with_the_cure(monkeypatch):
    def full(file, start, length):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    token = next(TOKENS)
    with pytest.raises(OSError, match=r"needs \d+ bytes in .*no room .*--shm-size") as caught:
        NodeMemory(token, [100], ring_length=8, largest_id=5)
    assert caught.value.errno == 28
    assert not (_node_memory._folder() / f"adaptive-sampling-{token:016x}").exists()


def test_a_forked_worker_must_not_draw():
    _, stream, _ = two_that_drew(10)
    child = os.fork()
    if not child:
        try:
            stream.fill(100)
        except RuntimeError as error:
            os._exit(7 if "forked worker must not draw" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    stream.fill(100)


@pytest.mark.parametrize("started", [False, True])
def test_a_state_is_taken_once_by_ranks_that_drew_before(started):
    alone, first, second = two_that_drew(30)
    saved = make_stream(block_size=2)
    saved.set_weights(np.arange(N))
    if started:
        saved.fill(9)
        saved.advance(5)
    state = saved.state_dict()
    for stream in (alone, first):
        stream.load_state_dict(state)
        stream.update_weights([1, 2], [5.0, 60.0])
        stream.fill(100)
    second.load_state_dict(state)
    second.fill(8)
    second.update_weights([1, 2], [5.0, 60.0])
    second.fill(100)
    assert first.ahead(5).tolist() == second.ahead(5).tolist() == alone.ahead(5).tolist()
