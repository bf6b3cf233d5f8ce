"""Streams that share one memory, each at its own pace, draw what a stream alone draws; here all in one process."""

import itertools
import os
import secrets
from pathlib import Path

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


def run_together(streams, program, look_aheads, rng):
    """Each stream goes on when chance picks it; states are taken now and then, with the step that they belong to."""
    orders = [[] for _ in streams]
    runs = {i: train(*each) for i, each in enumerate(zip(streams, [program] * len(streams), look_aheads, orders))}
    waiting = set()
    states = []
    while runs:
        able = sorted(set(runs) - waiting)
        if not able:
            waiting.clear()  # all have met
            continue
        # Some streams rest for long, so that others run far ahead.
        i = able[min(int(rng.geometric(0.7)) - 1, len(able) - 1)] if rng.random() < 0.8 else rng.choice(able)
        meets = next(runs[i], None)
        if meets is None:
            del runs[i]
        elif meets:
            waiting.add(i)
    return orders


ACTIONS = st.tuples(st.sampled_from(["schedule", "set", "update", "jump"]), st.integers(0, 10**6))
PROGRAMS = st.lists(st.none() | ACTIONS, min_size=1, max_size=60)


@settings(max_examples=150)
@given(
    st.sampled_from(["systematic", "multinomial"]), st.integers(1, 30), PROGRAMS, st.integers(2, 4), st.integers(0, 99)
)
def test_ranks_at_any_pace_draw_what_one_alone_draws(draws, block_size, program, num_ranks, chance):
    expected = run_alone(make_stream(draws, block_size), program)
    streams = [make_stream(draws, block_size) for _ in range(num_ranks)]
    share(streams)
    rng = np.random.default_rng(chance)
    for order in run_together(streams, program, [[0]] * num_ranks, rng):
        assert order == expected


@settings(max_examples=150)
@given(
    st.sampled_from(["systematic", "multinomial"]),
    st.integers(1, 30),
    st.lists(st.none() | st.integers(0, 10**6), min_size=1, max_size=60),
    st.lists(st.lists(st.integers(0, LAG), min_size=1, max_size=4), min_size=2, max_size=4),
    st.integers(0, 99),
)
def test_ranks_may_look_ahead_as_far_as_the_lag(draws, block_size, seeds, look_aheads, chance):
    program = [None if seed is None else ("schedule", seed) for seed in seeds]
    expected = run_alone(make_stream(draws, block_size), program)
    streams = [make_stream(draws, block_size) for _ in look_aheads]
    share(streams)
    for order in run_together(streams, program, look_aheads, np.random.default_rng(chance)):
        assert order == expected
