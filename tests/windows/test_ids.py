import copy
import pickle
from collections import namedtuple

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from adaptive_sampling.windows import WindowConfig, WindowDataset, with_ids

Pair = namedtuple("Pair", "x y")


class Batched(list):
    note = "hello"

    def __getitems__(self, indices):
        self.asked = indices
        return [self[index] for index in indices]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"x": 5}, {"x": 5, "window_id": 1}),
        ((5, 6), (5, 6, 1)),
        ([5, 6], [5, 6, 1]),
        (Pair(5, 6), (5, 6, 1)),
        (5, (5, 1)),
        ("text", ("text", 1)),
    ],
)
def test_with_ids_adds_the_index_to_a_copy(item, expected):
    items = [None, item]
    before = copy.deepcopy(item)
    found = with_ids(items)[1]
    assert found == expected
    assert type(found) is type(expected)
    assert items[1] == before


def test_with_ids_collates_to_int64():
    dataset = with_ids(TensorDataset(torch.arange(6.0)))
    batch = list(DataLoader(dataset, batch_size=3))[1]
    assert batch[0].tolist() == [3.0, 4.0, 5.0]
    assert batch[1].tolist() == [3, 4, 5]
    assert batch[1].dtype == torch.int64


def test_with_ids_passes_batches_and_attributes_through():
    wrapped = with_ids(Batched([{"x": 5}, {"x": 6}]), key="id")
    assert len(wrapped) == 2
    assert wrapped.note == "hello"
    assert wrapped.__getitems__([1, 0]) == [{"x": 6, "id": 1}, {"x": 5, "id": 0}]
    assert wrapped.asked == [1, 0]
    assert with_ids([7, 8]).__getitems__([1]) == [(8, 1)]
    with pytest.raises(AttributeError, match="absent"):
        _ = wrapped.absent


def test_with_ids_pickles_and_copies():
    wrapped = with_ids([{"x": 5}])
    assert pickle.loads(pickle.dumps(wrapped))[0] == copy.copy(wrapped)[0] == {"x": 5, "window_id": 0}


def test_with_ids_agrees_with_ids_that_are_there(write_store):
    windows = WindowDataset(write_store(range(20)), WindowConfig(4))
    assert with_ids(windows)[1]["window_id"] == 1
    shuffled = torch.utils.data.Subset(windows, [2, 1, 0])
    with pytest.raises(ValueError, match=r"`key` .*'window_id'.* item 0"):
        with_ids(shuffled)[0]
    assert with_ids(shuffled, key="place")[0]["place"] == 0


@pytest.mark.parametrize("bad", [-1, 2])
def test_with_ids_refuses_ids_out_of_range(bad):
    wrapped = with_ids([5, 6])
    with pytest.raises(IndexError, match=f"got {bad}"):
        wrapped[bad]
    with pytest.raises(IndexError, match=f"got {bad}"):
        wrapped.__getitems__([bad])


def test_with_ids_refuses_what_is_not_map_style():
    with pytest.raises(TypeError, match=r"`dataset` must be map-style.*generator"):
        with_ids(x for x in range(3))
    with pytest.raises(ValueError, match="`key` must be a name, got ''"):
        with_ids([1], key="")


def test_with_ids_refuses_an_iterable_dataset_that_has_a_length():
    class Stream(IterableDataset):
        def __len__(self):
            return 3

        def __iter__(self):
            return iter(range(3))

    with pytest.raises(TypeError, match=r"map-style.*Stream.*no indices to weigh"):
        with_ids(Stream())
