import pickle
import warnings

import numpy as np
import pytest

from adaptive_sampling import AdaptiveSampler
from adaptive_sampling.windows import WindowConfig, WindowDataset


def texts(lengths):
    ids = iter(range(1, 10**6))
    return [[next(ids) for _ in range(length)] for length in lengths]


def test_eos_dropout_leaves_separators_out_and_text_in_its_place(write_store):
    store = write_store(*texts([4] * 200), append_eos=True)
    plain = WindowDataset(store, WindowConfig(12, pack="concat"))
    dataset = WindowDataset(store, WindowConfig(12, pack="concat", eos_dropout=0.4))
    assert len(dataset) == len(plain)
    shares, first = [], dataset.read(range(len(dataset)))["input_ids"]
    for epoch in range(8):
        dataset.set_epoch(epoch)
        batch = dataset.read(range(len(dataset)))
        ids = batch["input_ids"]
        shares.append((ids == 0).mean())
        real = ids[ids != 0]
        assert (np.diff(real) >= -12).all()
        assert (batch["labels"][:, :-1] == ids[:, 1:]).all()
        # A window starts where it did, or behind a separator that is left out; the last ones as late as they can.
        moved = dataset.starts() - plain.starts()
        assert set(moved[:-4].tolist()) <= {0, 1}
        assert (moved <= 1).all()
        # Positions begin anew at each document, whether or not a separator is before it.
        begins = np.isin(ids, [text[0] for text in texts([4] * 200)])
        assert (batch["position_ids"][begins] == 0).all()
    # Of 20 % separators, 60 % stay: 0.12 / (0.8 + 0.12) = 13 %; 8 epochs of 960 tokens, standard deviation 0.4 %.
    assert abs(np.mean(shares) - 0.1304) < 0.015
    dataset.set_epoch(0)
    assert (dataset.read(range(len(dataset)))["input_ids"] == first).all()


def test_eos_dropout_of_all_keeps_the_last_and_documents_of_one_token(write_store):
    store = write_store([1, 2], [], [3, 4], [5, 6], append_eos=True)
    dataset = WindowDataset(store, WindowConfig(7, pack="concat", eos_dropout=1.0))
    assert dataset[0]["input_ids"].tolist() == [1, 2, 0, 3, 4, 5, 6]
    assert dataset[0]["labels"].tolist() == [2, 0, 3, 4, 5, 6, 0]
    short = WindowDataset(store, WindowConfig(9, pack="concat", eos_dropout=1.0))
    assert short[0]["labels"].tolist() == [2, 0, 3, 4, 5, 6, 0, -100, -100]
    assert short.valid_targets().tolist() == [7]


def test_only_an_eos_is_left_out(write_store):
    store = write_store([1, 2], [3, 4, 0], [5, 6, 7])
    dataset = WindowDataset(store, WindowConfig(6, pack="concat", eos_dropout=1.0))
    assert dataset[0]["input_ids"].tolist() == [1, 2, 3, 4, 5, 6]


def test_reshuffled_documents_are_all_there_in_every_epoch(write_store):
    lengths = [3, 9, 1, 5, 7, 4, 6, 5] * 5
    store = write_store(*texts(lengths), sources=["x", "y"] * 20)
    config = WindowConfig(4, 4, pack="concat", tail="pad", reshuffle_documents=True)
    dataset = WindowDataset(store, config)
    orders = []
    for epoch in range(3):
        dataset.set_epoch(epoch)
        batch = dataset.read(range(len(dataset)))
        targets = batch["labels"][batch["labels"] != -100]
        assert len(set(targets.tolist())) == len(targets) == store.num_tokens - 2
        orders.append(dataset.documents().tolist())
        assert (np.diff(dataset.sources()) >= 0).all()
        assert (dataset.store.document_sources[dataset.documents()] == dataset.sources()).all()
    assert orders[0] != orders[1] != orders[2]
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.documents().tolist() == orders[2]
    other = WindowDataset(store, WindowConfig(4, 4, pack="concat", tail="pad", reshuffle_documents=True, seed=1))
    other.set_epoch(2)
    assert other.documents().tolist() != orders[2]


def test_moving_text_is_no_ground_for_weights_and_says_why(write_store):
    store = write_store(*texts([5] * 9))
    moving = WindowDataset(store, WindowConfig(4, pack="concat", reshuffle_documents=True))
    assert "`reshuffle_documents` must be False with adaptive weights, got True" in moving.adaptive_weights_error
    assert "moves text between window ids" in moving.adaptive_weights_error
    sampler = AdaptiveSampler(moving, seed=0)
    for change in (
        lambda: sampler.set_weights(np.arange(1, 1 + len(moving))),
        lambda: sampler.update_weights([0], [2]),
    ):
        with pytest.raises(ValueError, match="`reshuffle_documents` must be False with adaptive weights"):
            change()
    assert sorted(sampler.draw(len(moving)).tolist()) == list(range(len(moving)))
    still = WindowConfig(4, pack="concat", eos_dropout=0.5, random_offset=True)
    assert WindowDataset(store, still).adaptive_weights_error is None


@pytest.mark.parametrize("pack", ["none", "concat"])
def test_a_fixed_offset_leaves_the_first_tokens_out(write_store, pack):
    store = write_store(range(10), range(10, 20), range(20, 22))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        dataset = WindowDataset(store, WindowConfig(4, 4, pack=pack, offset=3))
    assert dataset.starts().tolist() == ([3, 13] if pack == "none" else [3, 7, 11, 15])
