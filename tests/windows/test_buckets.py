import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from adaptive_sampling import AdaptiveSampler
from adaptive_sampling.windows import (
    LengthBucketBatchSampler,
    WindowConfig,
    WindowDataset,
    bucket_of,
    padding_share,
    trim_padding,
)


def test_buckets_hold_what_is_at_most_their_boundary():
    found = bucket_of([1, 7, 8, 9, 16, 17], [8, 16, 32])
    assert np.bincount(found).tolist() == [3, 2, 1]
    assert bucket_of([33], [8, 16, 32]).tolist() == [3]
    with pytest.raises(ValueError, match=r"`boundaries` must rise, got \[8, 8\]"):
        bucket_of([1], [8, 8])


def test_padding_share_counts_what_a_batch_is_wider_than_its_windows():
    assert padding_share([4, 2, 1], [[0, 1], [2]]) == pytest.approx(2 / 9)
    assert padding_share([4], []) == 0.0


@given(st.integers(0, 60), st.integers(1, 7), st.integers(1, 4), st.booleans())
def test_bucket_batches_hold_each_id_once(count, batch_size, block, drop_last):
    lengths = np.arange(1, count + 1) % 9 + 1
    sampler = LengthBucketBatchSampler(
        range(count), batch_size, drop_last, lengths=lengths, boundaries=[3, 6], block_batches=block
    )
    batches = list(sampler)
    seen = [index for batch in batches for index in batch]
    assert len(set(seen)) == len(seen)
    assert [len(batch) for batch in batches if len(batch) != batch_size] == (
        [count % batch_size] if count % batch_size and not drop_last else []
    )
    assert len(seen) == (count // batch_size * batch_size if drop_last else count)
    assert len(batches) == len(sampler)


def test_buckets_save_padding_and_say_how_much():
    lengths = np.random.Generator(np.random.Philox(0)).integers(1, 100, 4096)
    sampler = LengthBucketBatchSampler(AdaptiveSampler(4096, seed=0), 16, lengths=lengths)
    batches = list(sampler)
    assert sampler.padding_after == pytest.approx(padding_share(lengths, batches))
    assert sampler.padding_after < 0.15 < 0.4 < sampler.padding_before
    # Batches of short and of long windows come in no order.
    means = [lengths[batch].mean() for batch in batches]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


def test_bucketed_loader_gives_trimmed_batches_of_all_windows(write_store):
    store = write_store(*[range(1, 2 + k % 7 * 3) for k in range(64)])
    dataset = WindowDataset(store, WindowConfig(16, tail="pad", min_length=2))
    sampler = LengthBucketBatchSampler(
        AdaptiveSampler(dataset, seed=0), 4, lengths=dataset.valid_targets(), block_batches=8
    )
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=trim_padding)
    seen, widths = [], set()
    for batch in loader:
        seen += batch["window_id"].tolist()
        widths.add(batch["input_ids"].shape[1])
        assert batch["labels"].shape == batch["position_ids"].shape == batch["input_ids"].shape
        assert (batch["labels"] != -100).any(dim=0)[-1]
    assert sorted(seen) == list(range(len(dataset)))
    assert len(widths) > 3
    nothing = {"input_ids": torch.zeros(3).long(), "labels": torch.full((3,), -100)}
    assert trim_padding([nothing])["labels"].shape == (1, 1)


def test_bad_buckets_are_refused():
    with pytest.raises(ValueError, match="`batch_size` must be at least 1, got 0"):
        LengthBucketBatchSampler([0], 0, lengths=[1])
    with pytest.raises(ValueError, match="`block_batches` must be at least 1, got 0"):
        LengthBucketBatchSampler([0], 1, lengths=[1], block_batches=0)
    with pytest.raises(IndexError, match="`lengths` must have an entry for every id, got 1 and id 5"):
        list(LengthBucketBatchSampler([5], 1, lengths=[1]))
    for lengths in ([1.5, float("nan"), 2.0], ["a"]):
        with pytest.raises(TypeError, match="`lengths` must be integers"):
            LengthBucketBatchSampler(range(3), 2, lengths=lengths)
        with pytest.raises(TypeError, match="`lengths` must be integers"):
            bucket_of(lengths, [8])
    with pytest.raises(ValueError, match="`lengths` must not be negative, got -1 for window 2"):
        LengthBucketBatchSampler(range(3), 2, lengths=[1, 2, -1])
