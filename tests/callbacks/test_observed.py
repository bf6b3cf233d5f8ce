import pytest
import torch

from adaptive_sampling.callbacks._observed import Observed

NEEDS = ("loss", "entropy")


def batch(first, count=3, device="cpu"):
    ids = torch.arange(first, first + count, dtype=torch.int32, device=device)
    return ids, {"entropy": 0.1 * ids, "loss": ids + 0.5}


def observed(*firsts):
    notes = Observed(NEEDS)
    for first in firsts:
        notes.add(*batch(first))
    return notes


def test_batches_come_out_once_in_order_with_a_column_per_need():
    notes = observed(0, 2**30)
    ((ids, values),) = notes.take()
    assert ids.dtype is torch.int64
    assert ids.tolist() == [0, 1, 2, 2**30, 2**30 + 1, 2**30 + 2]
    assert torch.equal(values[:, 0], torch.cat([batch(0)[1]["loss"], batch(2**30)[1]["loss"]]))
    assert torch.equal(values[:, 1], torch.cat([batch(0)[1]["entropy"], batch(2**30)[1]["entropy"]]))
    ((ids, values),) = notes.take()
    assert (ids.shape, values.shape) == ((0,), (0, 2))


def test_a_state_goes_on_with_what_comes_after_on_any_device():
    state = observed(5, 9).own_state()
    notes = Observed(NEEDS)
    notes.load(state, 0, 1)
    notes.add(*batch(20))
    ((ids, values),) = notes.take()
    assert ids.tolist() == [5, 6, 7, 9, 10, 11, 20, 21, 22]
    assert values[:, 0].tolist() == [i + 0.5 for i in ids.tolist()]
    # A restored batch is on the CPU, new ones are where the module is.
    notes.load(state, 0, 1)
    notes.add(*batch(20, device="meta"))
    ids, values = notes._own()
    assert ids.device == values.device == torch.device("meta")
    assert (ids.shape, values.shape) == ((9,), (9, 2))


@pytest.mark.parametrize(
    ("saved", "world", "expected"),
    [(2, 2, [[0, 1, 2], [7, 8, 9]]), (2, 1, [[0, 1, 2, 7, 8, 9]]), (2, 3, [[0, 1, 2, 7, 8, 9], [], []])],
)
def test_parts_of_other_ranks_go_to_rank_zero_and_none_is_lost(saved, world, expected):
    parts = [observed(0).own_state()[0], observed(7).own_state()[0]][:saved]
    for rank in range(world):
        notes = Observed(NEEDS)
        notes.load(parts, rank, world)
        ((ids, _),) = notes.gathered()
        assert ids.tolist() == expected[rank]
