import numpy as np
import pytest

from adaptive_sampling.windows.plan import WindowPlan, window_counts
from adaptive_sampling.windows.thinning import thin as thin_names


def make_plan(lengths, keys=None, seq_len=4):
    lengths = np.array(lengths, np.int64)
    keys = np.arange(len(lengths), dtype=np.uint64) if keys is None else np.array(keys, np.uint64)
    return WindowPlan(lengths, keys, np.cumsum(window_counts(lengths, seq_len, 2)), seq_len, 2, "drop", False, 0)


def thin(plan, rate, seed):
    def names(ids):
        streams, numbers = plan.locate(ids)
        return plan.keys[streams], plan.fixed_starts(streams, numbers)

    return thin_names(plan.num_windows, rate, seed, names)


def kept_places(plan, kept):
    streams, numbers = plan.locate(kept.select(np.arange(len(kept))))
    return set(zip(plan.keys[streams].tolist(), plan.fixed_starts(streams, numbers).tolist(), strict=True))


@pytest.mark.parametrize("rate", [0.001, 0.4, 0.999, 1.0])
def test_select_lists_the_set_bits(rate):
    kept = thin(make_plan([5, 4000, 4, 9000, 1]), rate, seed=0)
    numbers = np.flatnonzero(np.unpackbits(kept.bits.ravel()))
    assert len(kept) == len(numbers)
    order = np.random.Generator(np.random.Philox(1)).permutation(len(kept))
    assert (kept.select(order) == numbers[order]).all()


def test_thin_keeps_the_share_and_is_nested():
    plan = make_plan([20_005])
    some, more, all_of_it = (thin(plan, rate, seed=0) for rate in (0.4, 0.5, 1.0))
    # binomial: 10,001 windows, standard deviation 49; four of them
    assert abs(len(some) - 4000) < 200
    assert kept_places(plan, some) < kept_places(plan, more)
    assert len(all_of_it) == plan.num_windows
    assert kept_places(plan, thin(plan, 0.4, seed=1)) != kept_places(plan, some)


def test_thin_does_not_depend_on_order_or_other_documents():
    one, two = make_plan([500, 300], [7, 8]), make_plan([40, 300, 500], [9, 8, 7])
    kept = kept_places(one, thin(one, 0.5, seed=0))
    assert kept == {place for place in kept_places(two, thin(two, 0.5, seed=0)) if place[0] != 9}


def test_thin_in_chunks_equals_thin_at_once(monkeypatch):
    plan = make_plan([9_000, 7])
    at_once = thin(plan, 0.3, seed=0)
    monkeypatch.setattr("adaptive_sampling.windows.thinning._CHUNK_WINDOWS", 64)
    assert (thin(plan, 0.3, seed=0).bits == at_once.bits).all()


def test_thin_of_nothing_is_empty():
    assert len(thin(make_plan([]), 0.5, seed=0)) == 0
