import numpy as np
import pytest

from adaptive_sampling.windows import WindowConfig, WindowDataset


def starts(store, *arguments, **settings):
    return WindowDataset(store, WindowConfig(*arguments, pack="concat", **settings)).starts().tolist()


def test_starts_move_to_the_nearest_document_within_half_a_stride(write_store):
    # Documents begin at 0, 7, 19, 22, 30.
    store = write_store(range(7), range(12), range(3), range(8), range(12))
    assert starts(store, 8, 8) == [0, 8, 16, 24, 32]
    assert starts(store, 8, 8, align="document") == [0, 7, 19, 22, 30]
    # Half of 6 is 3: 12 is 5 away from 7 and 7 away from 19, so it stays.
    assert starts(store, 8, 6, align="document") == [0, 7, 12, 19, 22, 30]


def test_a_start_never_moves_past_the_end(write_store):
    store = write_store(range(10), range(9))
    assert starts(store, 8, 9) == [0, 9]
    assert starts(store, 8, 9, align="document") == [0, 10]
    assert starts(store, 9, 9, align="document") == [0, 9]


def test_the_window_of_a_tail_stays(write_store):
    store = write_store(range(12), range(8))
    assert starts(store, 8, 8, tail="cover", align="document") == [0, 8, 11]
    assert starts(store, 8, 8, tail="pad", align="document") == [0, 8, 16]


def test_a_boundary_in_the_middle_goes_to_the_later_start(write_store):
    store = write_store(range(6), range(14))
    assert starts(store, 4, 4) == [0, 4, 8, 12]
    assert starts(store, 4, 4, align="document") == [0, 4, 6, 12]
    # No other window would take 6: the one before does.
    assert starts(write_store(range(6), range(4)), 4, 4, align="document") == [0, 4]
    assert starts(write_store(range(6), range(5)), 4, 4, align="document") == [0, 6]


def test_paragraphs_count_where_the_store_has_them(write_store):
    store = write_store(range(30), sources=["a"])
    config = WindowConfig(8, 8, align="paragraph")
    with pytest.raises(ValueError, match="`align` must be 'none' or 'document' for a store without paragraph starts"):
        WindowDataset(store, config)
    store.paragraph_starts = np.array([0, 10, 13, 20])
    assert WindowDataset(store, config).starts().tolist() == [0, 10, 13]
    with_random = WindowConfig(8, 8, align="paragraph", random_offset=True)
    dataset = WindowDataset(store, with_random)
    for epoch in range(5):
        dataset.set_epoch(epoch)
        assert (np.diff(dataset.starts()) >= 0).all()


def test_paragraphs_of_other_sources_do_not_count(write_store):
    store = write_store(range(10), range(50, 60), range(10, 30), sources=["a", "b", "a"])
    store.paragraph_starts = np.array([0, 5, 10, 14, 20, 33])
    # Source a reads store positions 0..9 and 20..39; 33 is at 23 of the stream.
    assert starts(store, 6, 6, align="paragraph")[:4] == [0, 5, 20, 28]
    assert starts(store, 6, 10, align="paragraph")[:3] == [0, 20, 33]
