import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.sampling import _seen
from adaptive_sampling.sampling._seen import SeenWindows

BATCHES = st.lists(st.lists(st.integers(0, 40), max_size=8), max_size=12)


@given(before=BATCHES, after=BATCHES, most=st.sampled_from([0, 3, 1 << 13]))
def test_seen_windows_are_those_of_a_set_whenever_they_are_counted(before, after, most):
    seen, expected = SeenWindows(41), set()
    held, _seen._MOST_WAITING = _seen._MOST_WAITING, most
    try:
        for ids in before:
            seen.add(np.array(ids, np.int64))
            expected.update(ids)
        assert seen.share == len(expected) / 41
        seen = SeenWindows(41, seen.bits)
        for ids in after:
            seen.add(np.array(ids, np.int64))
            expected.update(ids)
        bits = np.unpackbits(seen.bits, bitorder="little")
        assert np.flatnonzero(bits).tolist() == sorted(expected)
        assert seen.share == len(expected) / 41
    finally:
        _seen._MOST_WAITING = held


def test_a_state_taken_over_is_a_copy():
    seen = SeenWindows(8)
    other = SeenWindows(8, seen.bits)
    other.add(np.array([3]))
    assert (seen.share, other.share) == (0.0, 1 / 8)
