import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.windows.plan import WindowPlan, window_counts, window_ends

STREAMS = st.lists(st.integers(0, 40), max_size=8)
TAILS = st.sampled_from(["drop", "cover", "pad"])


def slow_starts(length, seq_len, stride, tail):
    """Starts of one stream, one by one."""
    starts = []
    start = 0
    while start + seq_len + 1 <= length:
        starts.append(start)
        start += stride
    if tail == "cover" and length > seq_len and starts[-1] != length - seq_len - 1:
        starts.append(length - seq_len - 1)
    reached = starts[-1] + seq_len + 1 if starts else 0
    if tail == "pad" and reached < length and start + 2 <= length:
        starts.append(start)
    return starts


def make_plan(lengths, seq_len, stride, tail, *, random_offset=False, seed=0):
    lengths = np.array(lengths, np.int64)
    ends = np.cumsum(window_counts(lengths, seq_len, stride, tail))
    keys = np.arange(len(lengths), dtype=np.uint64)
    return WindowPlan(lengths, keys, ends, seq_len, stride, tail, random_offset, seed)


@given(STREAMS, st.integers(1, 9), st.integers(1, 12), TAILS)
def test_plan_equals_the_slow_list(lengths, seq_len, stride, tail):
    plan = make_plan(lengths, seq_len, stride, tail)
    slow = [(s, start) for s, length in enumerate(lengths) for start in slow_starts(length, seq_len, stride, tail)]
    assert plan.num_windows == len(slow)
    streams, numbers = plan.locate(np.arange(len(slow)))
    found = zip(streams.tolist(), plan.fixed_starts(streams, numbers).tolist(), strict=True)
    assert list(found) == slow


@given(STREAMS, st.integers(1, 9), st.integers(1, 12), TAILS, st.integers(0, 5), st.integers(0, 3))
def test_plan_offsets_move_starts_within_a_stride_and_keep_the_tail(lengths, seq_len, stride, tail, epoch, seed):
    plan = make_plan(lengths, seq_len, stride, tail, random_offset=True, seed=seed)
    streams, numbers = plan.locate(np.arange(plan.num_windows))
    fixed, moved = plan.fixed_starts(streams, numbers), plan.starts(streams, numbers, epoch)
    last_full = plan.lengths[streams] - seq_len - 1
    assert (moved >= fixed).all()
    assert (moved - fixed < stride).all()
    in_place = fixed >= last_full
    assert (moved[in_place] == fixed[in_place]).all()
    assert (moved[~in_place] <= last_full[~in_place]).all()
    for stream in np.unique(streams):
        own = np.flatnonzero(streams == stream)
        assert (np.diff(moved[own]) >= 0).all()
        offset = moved[own[0]] - fixed[own[0]]
        assert (moved[own] == np.minimum(fixed[own] + offset, np.maximum(last_full[own], fixed[own]))).all()


def test_plan_offsets_differ_by_epoch_seed_and_stream():
    plan = make_plan([1000] * 20, 100, 100, "drop", random_offset=True)
    other = make_plan([1000] * 20, 100, 100, "drop", random_offset=True, seed=1)
    first = np.arange(20), np.zeros(20, np.int64)
    offsets = [plan.starts(*first, 0), plan.starts(*first, 1), other.starts(*first, 0)]
    assert all(len(set(row.tolist())) > 5 for row in offsets)
    assert (offsets[0] != offsets[1]).any()
    assert (offsets[0] != offsets[2]).any()
    assert (offsets[0] == plan.starts(*first, 0)).all()


def test_plan_numbers_of_a_long_document():
    assert window_counts(np.array([10_000]), 1024, 256).tolist() == [36]
    assert window_counts(np.array([10_000]), 1024, 256, "cover").tolist() == [37]
    plan = make_plan([10_000], 1024, 256, "cover")
    assert plan.fixed_starts(*plan.locate(np.array([35, 36]))).tolist() == [8_960, 8_975]


@pytest.mark.parametrize("tail", ["drop", "cover", "pad"])
def test_plan_of_a_billion_windows_is_arithmetic(tail):
    plan = make_plan([10**12 + 1, 3, 10**12 + 1], 1000, 1000, tail)
    assert plan.num_windows == 2 * 10**9 + (tail == "pad")
    streams, numbers = plan.locate(np.array([plan.num_windows - 1]))
    assert streams.tolist() == [2]
    assert plan.fixed_starts(streams, numbers).tolist() == [10**12 - 1000]


def test_plan_refuses_more_windows_than_ids():
    counts = np.full(4, 2**61)
    with pytest.raises(ValueError, match=r"`stride` must leave fewer than 2\^62 windows, got 9\.22e\+18"):
        window_ends(counts)
    assert window_ends(counts[:1]).tolist() == [2**61]
