import threading

import numpy as np
import torch

from adaptive_sampling.windows import WindowConfig, WindowDataset
from adaptive_sampling.windows._buffers import Buffers


def test_an_array_comes_again_only_when_nobody_holds_it():
    buffers = Buffers()
    first = buffers.take(2, 3)
    address = first.ctypes.data
    second = buffers.take(2, 3)
    assert second.ctypes.data != address
    view = first[0, 1:]
    del first
    assert buffers.take(2, 3).ctypes.data != address
    tensor = torch.from_numpy(view)
    del view
    assert buffers.take(2, 3).ctypes.data != address
    del tensor
    assert address in {array.ctypes.data for array in [buffers.take(2, 3) for _ in range(4)]}


def test_many_shapes_and_arrays_in_use_are_no_trouble():
    buffers = Buffers()
    held = [buffers.take(rows, 2) for rows in range(1, 60)]
    assert [array.shape for array in held] == [(rows, 2) for rows in range(1, 60)]
    assert len({array.ctypes.data for array in held}) == 59
    assert len(buffers._arrays) <= 16


def test_batches_that_are_kept_never_change(write_store):
    store = write_store(range(1, 3000), [5] * 40, range(3000, 5000))
    dataset = WindowDataset(store, WindowConfig(16, pack="concat"))
    kept = [dataset.read([k, k + 1, k + 2]) for k in range(300)]
    items = [dataset.__getitems__([k, k + 1])[1] for k in range(300)]
    for k in range(300):
        for name, values in kept[k].items():
            assert (values == dataset.read([k, k + 1, k + 2])[name]).all()
        assert torch.equal(items[k]["input_ids"], torch.from_numpy(kept[k]["input_ids"][1]))


def test_threads_never_share_an_array():
    buffers, faults = Buffers(), []

    def work(number):
        for _ in range(2000):
            array = buffers.take(4, 4)
            array[...] = number
            if not (array == number).all():
                faults.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_rows_that_are_all_the_same_are_read_only(write_store):
    batch = WindowDataset(write_store(range(20)), WindowConfig(4)).read([0, 1])
    assert not batch["position_ids"].flags.writeable
    assert batch["labels"].flags.writeable
    assert batch["input_ids"].flags.writeable
    assert np.shares_memory(batch["input_ids"], batch["labels"]) is False
