import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.windows.lookup import Lookup


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.booleans())
def test_find_equals_a_binary_search(gaps, small):
    ends = np.cumsum(np.array(gaps, np.int64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adaptive_sampling.windows.lookup._SMALL", 10**6 if small else 1)
        lookup = Lookup(ends)
    numbers = np.arange(ends[-1] + 1)
    assert (lookup.find(numbers) == np.searchsorted(ends, numbers, side="right")).all()


def test_find_among_many_ends_and_crowded_ones():
    rng = np.random.Generator(np.random.Philox(0))
    for lengths in (rng.integers(0, 50, 20_000), np.repeat([1, 10**6], [20_000, 20]), rng.lognormal(3, 2, 20_000)):
        ends = np.cumsum(lengths.astype(np.int64))
        lookup = Lookup(ends)
        numbers = rng.integers(0, ends[-1] + 1, 5000)
        assert (lookup.find(numbers) == np.searchsorted(ends, numbers, side="right")).all()
    assert Lookup(np.zeros(0, np.int64)).find(np.zeros(0, np.int64)).tolist() == []
    assert Lookup(np.zeros(10_000, np.int64)).find(np.zeros(2, np.int64)).tolist() == [10_000] * 2
