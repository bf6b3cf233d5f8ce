import os
import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.errors import StoreError
from adaptive_sampling.sampling import AdaptiveSampler
from adaptive_sampling.windows import WindowConfig, WindowDataset

TEN = list(range(10))


def slow_windows(documents, sources, seq_len, stride, tail, pack, eos, min_length):
    """(inputs, labels, document ids, positions, first document) of every window, token by token."""
    documents = list(enumerate(documents))
    if pack == "none":
        streams = [[document] for document in documents]
    else:
        names = list(dict.fromkeys(sources))
        streams = [[d for d in documents if sources[d[0]] == name and len(d[1]) >= min_length] for name in names]
    windows = []
    for stream in streams:
        tokens = [(token, number, place) for number, ids in stream for place, token in enumerate(ids)]
        if pack == "none" and len(tokens) < min_length:
            continue
        starts = list(range(0, max(len(tokens) - seq_len, 0), stride))
        if tail == "cover" and starts and starts[-1] != len(tokens) - seq_len - 1:
            starts.append(len(tokens) - seq_len - 1)
        following = starts[-1] + stride if starts else 0
        if tail == "pad" and following + 1 < len(tokens) and (not starts or starts[-1] + seq_len + 1 < len(tokens)):
            starts.append(following)
        for start in starts:
            part = tokens[start : start + seq_len + 1]
            missing = seq_len + 1 - len(part)
            seen = list(dict.fromkeys(number for _, number, _ in part[:-1]))
            document_ids = [seen.index(number) for _, number, _ in part[:-1]]
            first_places = {number: place for _, number, place in reversed(part)}
            positions = [place - first_places[number] for _, number, place in part[:-1]]
            inputs = [token for token, _, _ in part[:-1]] + [eos] * missing
            labels = [token for token, _, _ in part[1:]] + [-100] * missing
            windows.append((inputs, labels, document_ids, positions, part[0][1]))
    return windows


def make(store, *arguments, **keywords):
    """A dataset whose warnings of lost documents are of no concern."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return WindowDataset(store, WindowConfig(*arguments, **keywords))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 14), st.sampled_from("xyz")), max_size=8),
    st.integers(1, 7),
    st.integers(1, 9),
    st.sampled_from(["drop", "cover", "pad"]),
    st.sampled_from(["none", "concat"]),
    st.integers(0, 5),
)
def test_read_equals_the_slow_windows(tmp_path_factory, documents, seq_len, stride, tail, pack, min_length):
    ids = iter(range(1, 10**6))
    texts = [[next(ids) for _ in range(length)] for length, _ in documents]
    sources = [source for _, source in documents]
    store = TokenStore.write(
        tmp_path_factory.mktemp("s") / "s", texts, vocab_size=200, eos_id=0, sources=sources, append_eos=False
    )
    dataset = make(store, seq_len, stride, tail=tail, pack=pack, min_length=min_length)
    slow = slow_windows(texts, sources, seq_len, stride, tail, pack, 0, min_length)
    assert len(dataset) == len(slow)
    order = np.arange(len(slow))[::-1]
    batch = dataset.read(order)
    assert batch["input_ids"].shape == (len(slow), seq_len)
    assert all(array.dtype == np.int64 for array in batch.values())
    assert batch["window_id"].tolist() == order.tolist()
    first_tokens = dataset.store.tokens[dataset.starts()]
    for row, window_id in enumerate(order):
        inputs, labels, document_ids, positions, document = slow[window_id]
        real = len(positions)
        assert batch["input_ids"][row].tolist() == inputs
        assert batch["labels"][row].tolist() == labels
        assert batch["document_ids"][row, :real].tolist() == document_ids
        assert batch["position_ids"][row, :real].tolist() == positions
        assert dataset.valid_targets([window_id]).tolist() == [real]
        assert dataset.documents([window_id]).tolist() == [document]
        assert store.source_names[dataset.sources([window_id])[0]] == sources[document]
        assert first_tokens[window_id] == inputs[0]
        trace = dataset.trace(window_id)
        assert trace["document"] == document
        assert trace["source"] == sources[document]
        assert trace["start_in_document"] == texts[document].index(inputs[0])
        assert store.tokens[trace["start"]] == inputs[0]
        assert store.tokens[trace["end"] - 1] == labels[real - 1]
        assert trace["document_key"] == store.document_keys[document]


def test_windows_side_by_side_and_the_covering_tail(write_store):
    store = write_store(TEN)
    dataset = WindowDataset(store, WindowConfig(4, 4))
    assert dataset.starts().tolist() == [0, 4]
    assert dataset.read([0, 1])["labels"].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    covering = WindowDataset(store, WindowConfig(4, 4, tail="cover"))
    assert covering.starts().tolist() == [0, 4, 5]
    assert covering[2]["input_ids"].tolist() == [5, 6, 7, 8]
    assert covering[2]["labels"].tolist() == [6, 7, 8, 9]
    fresh = WindowDataset(store, WindowConfig(4, 4, tail="cover", mask_repeated_targets=True))
    assert fresh[2]["input_ids"].tolist() == [5, 6, 7, 8]
    assert fresh[2]["labels"].tolist() == [-100, -100, -100, 9]
    assert fresh.valid_targets().tolist() == [4, 4, 1]
    assert WindowDataset(store, WindowConfig(4)).starts().tolist() == [0, 4]


@pytest.mark.parametrize("length", [0, 1, 4])
def test_a_stream_too_short_for_a_window_is_reported(write_store, length):
    with pytest.warns(
        UserWarning, match=rf"no window: `seq_len` 4 needs 5 tokens, the longest document has {length}\."
    ):
        dataset = WindowDataset(write_store(range(length)), WindowConfig(4))
    assert len(dataset) == 0
    assert dataset.starts().tolist() == []
    assert dataset.read([])["input_ids"].shape == (0, 4)
    with pytest.raises(IndexError, match="got 0"):
        dataset[0]


def test_the_least_stream_has_one_window(write_store):
    assert WindowDataset(write_store(range(5)), WindowConfig(4)).starts().tolist() == [0]
    assert WindowDataset(write_store([7, 8]), WindowConfig(1))[0]["labels"].tolist() == [8]


def test_padding_marks_what_has_no_target(write_store):
    dataset = WindowDataset(write_store([0, 1, 2, 3], eos_id=9), WindowConfig(4, tail="pad"))
    assert dataset[0]["input_ids"].tolist() == [0, 1, 2, 9]
    assert dataset[0]["labels"].tolist() == [1, 2, 3, -100]
    assert dataset.valid_targets().tolist() == [3]
    with pytest.warns(UserWarning, match="no window: .* needs 2 tokens"):
        assert len(WindowDataset(write_store([1]), WindowConfig(4, tail="pad"))) == 0


def test_strides_that_overlap(write_store):
    store = write_store(TEN)
    assert make(store, 4, 2).starts().tolist() == [0, 2, 4]
    assert make(store, 4, 2, tail="cover").starts().tolist() == [0, 2, 4, 5]
    assert make(store, 4, 5).starts().tolist() == [0, 5]
    masked = make(store, 4, 2, tail="cover", mask_repeated_targets=True)
    assert masked.valid_targets().tolist() == [4, 2, 2, 1]
    assert masked.read([1, 3])["labels"].tolist() == [[-100, -100, 5, 6], [-100, -100, -100, 9]]


def test_masking_does_not_reach_over_streams_or_windows_thinned_out(write_store):
    store = write_store(range(400), range(500, 900))
    masked = make(store, 4, 2, thinning=0.5, mask_repeated_targets=True)
    batch = masked.read(np.arange(len(masked)))
    plain = make(store, 4, 2, thinning=0.5).read(np.arange(len(masked)))["labels"]
    valid = batch["labels"] != -100
    # Each token that is a target of some window is left as one exactly once, and is left in the first.
    assert sorted(batch["labels"][valid].tolist()) == sorted(set(plain.ravel().tolist()))
    assert (batch["labels"][valid] == plain[valid]).all()
    assert (masked.valid_targets() == valid.sum(axis=1)).all()


def test_masking_leaves_one_target_when_an_offset_makes_two_windows_the_same(write_store):
    dataset = make(write_store(range(30)), 4, 4, tail="cover", random_offset=True, mask_repeated_targets=True)
    seen = set()
    for epoch in range(20):
        dataset.set_epoch(epoch)
        seen.add(tuple(np.diff(dataset.starts())[-1:].tolist()))
        assert (dataset.valid_targets() >= 1).all()
        assert ((dataset.read(range(len(dataset)))["labels"] != -100).sum(axis=1) == dataset.valid_targets()).all()
    assert (0,) in seen


def test_packed_windows_number_documents_and_restart_positions(write_store):
    store = write_store([11, 12, 0], [21, 0], [31, 32, 33, 0])
    item = WindowDataset(store, WindowConfig(6, pack="concat"))[0]
    assert item["input_ids"].tolist() == [11, 12, 0, 21, 0, 31]
    assert item["labels"].tolist() == [12, 0, 21, 0, 31, 32]
    assert item["document_ids"].tolist() == [0, 0, 0, 1, 1, 2]
    assert item["position_ids"].tolist() == [0, 1, 2, 0, 1, 0]
    second = WindowDataset(store, WindowConfig(6, 1, pack="concat"))[1]
    assert second["document_ids"].tolist() == [0, 0, 1, 1, 2, 2]
    assert second["position_ids"].tolist() == [0, 1, 0, 1, 0, 1]


def test_packed_streams_keep_sources_apart(write_store):
    store = write_store([1, 2], [51, 52], [3, 4], [53, 54], sources=["a", "b", "a", "b"])
    dataset = WindowDataset(store, WindowConfig(3, pack="concat"))
    batch = dataset.read([1, 0])
    assert batch["input_ids"].tolist() == [[51, 52, 53], [1, 2, 3]]
    assert batch["labels"].tolist() == [[52, 53, 54], [2, 3, 4]]
    assert dataset.starts().tolist() == [0, 2]
    assert dataset.trace(1)["end"] == 8
    between = write_store([1, 2], [3, 4], [9], [51, 52], [53, 54], sources=["a", "a", "a", "b", "b"])
    dropped = WindowDataset(between, WindowConfig(3, pack="concat", min_length=2))
    assert dropped.read([0, 1])["input_ids"].tolist() == [[1, 2, 3], [51, 52, 53]]


def test_lost_documents_are_warned_of_with_their_share(write_store):
    store = write_store(range(8), range(2))
    with pytest.warns(UserWarning, match=r"1 of 2 documents .* window of 5 tokens, lost: 20\.0% of the tokens"):
        WindowDataset(store, WindowConfig(4))
    WindowDataset(store, WindowConfig(4, min_length=5))
    WindowDataset(store, WindowConfig(4, pack="concat"))
    WindowDataset(store, WindowConfig(4, tail="pad"))


def test_thinning_keeps_the_same_windows_under_new_ids(write_store):
    store = write_store(range(1000), range(1000, 1500), keys=["p", "q"])
    whole, thinned = make(store, 4), make(store, 4, thinning=0.4)
    assert 0 < len(thinned) < len(whole)
    starts = set(whole.starts().tolist())
    assert set(thinned.starts().tolist()) < starts
    assert set(thinned.starts().tolist()) < set(make(store, 4, thinning=0.5).starts().tolist())
    assert (thinned.read([3])["input_ids"][0] == store.tokens[thinned.starts([3])[0] :][:4]).all()
    moved = make(store, 4, thinning=0.4, random_offset=True)
    assert len(moved) == len(thinned)
    other = write_store(range(1000, 1500), range(1000), keys=["q", "p"])
    swapped = make(other, 4, thinning=0.4)
    assert sorted(swapped.read(range(len(swapped)))["input_ids"][:, 0].tolist()) == thinned.starts().tolist()
    with pytest.warns(UserWarning, match="thinning` 1e-12 keeps none of 2"):
        WindowDataset(write_store(TEN), WindowConfig(4, thinning=1e-12))


def test_set_epoch_moves_windows_and_nothing_else(write_store):
    store = write_store(range(2000), range(300))
    dataset, fixed = make(store, 16, random_offset=True), make(store, 16)
    length, first = len(dataset), dataset.starts()
    dataset.set_epoch(3)
    assert dataset.epoch == 3
    assert len(dataset) == length == len(fixed)
    assert (dataset.starts() != first).any()
    assert (dataset.documents() == fixed.documents()).all()
    assert (dataset[5]["input_ids"] == torch.tensor(store.tokens[dataset.starts([5])[0] :][:16].astype(int))).all()
    dataset.set_epoch(0)
    assert (dataset.starts() == first).all()
    fixed.set_epoch(3)
    assert fixed.starts().tolist() == make(store, 16).starts().tolist()
    for epoch in (-1, 1.0, True, 2**63):
        with pytest.raises(ValueError, match=f"`epoch` .*{epoch}"):
            dataset.set_epoch(epoch)


@pytest.mark.parametrize("bad", [10, -1, np.int64(2), 2**70])
def test_ids_out_of_range_are_refused(write_store, bad):
    dataset = WindowDataset(write_store(TEN), WindowConfig(4))
    for call in (dataset.__getitem__, dataset.trace):
        with pytest.raises(IndexError, match=f"from 0 to 1, got {bad}"):
            call(bad)
    for call in (dataset.read, dataset.__getitems__, dataset.starts, dataset.valid_targets):
        with pytest.raises(IndexError, match=f"from 0 to 1, got {bad}"):
            call([0, bad])


@pytest.mark.parametrize("bad", [1.0, "1", None, True, np.float32(1), torch.tensor(1.0), torch.tensor(True), slice(2)])
def test_ids_that_are_no_integers_are_refused(write_store, bad):
    dataset = WindowDataset(write_store(TEN), WindowConfig(4))
    with pytest.raises(TypeError, match="window id must be an integer"):
        dataset[bad]
    with pytest.raises(TypeError, match="window ids must be"):
        dataset.read(np.array([bad]) if not isinstance(bad, torch.Tensor) else bad[None])


def test_ids_of_any_integer_kind_are_taken(write_store):
    dataset = WindowDataset(write_store(TEN), WindowConfig(4))
    for one in (1, np.uint8(1), torch.tensor(1)):
        assert dataset[one]["window_id"].item() == 1
    for many in ([1, 1], (1, 1), np.array([1, 1], np.uint16), torch.tensor([1, 1])):
        assert dataset.read(many)["input_ids"].tolist() == [[4, 5, 6, 7]] * 2
    own = np.array([0, 1])
    dataset.read(own)["window_id"][:] = 7
    assert own.tolist() == [0, 1]
    with pytest.raises(TypeError, match=r"one-dimensional, got shape \(1, 1\)"):
        dataset.read([[1]])
    assert len(list(dataset)) == 2


@pytest.mark.parametrize("pack", ["none", "concat"])
def test_getitems_equals_getitem_and_collates(write_store, pack):
    dataset = make(write_store(range(50), range(50, 90)), 4, pack=pack)
    items = dataset.__getitems__([3, 0, 3])
    for item, index in zip(items, (3, 0, 3), strict=True):
        single = dataset[index]
        assert item.keys() == single.keys() == {"input_ids", "labels", "window_id", "document_ids", "position_ids"}
        assert all(torch.equal(item[name], single[name]) for name in single)
        assert all(tensor.dtype == torch.int64 for tensor in single.values())
    assert single["window_id"].shape == ()
    batch = next(iter(DataLoader(dataset, batch_size=4)))
    assert batch["input_ids"].shape == (4, 4)
    assert batch["window_id"].tolist() == [0, 1, 2, 3]


def test_inputs_and_labels_share_no_memory(write_store):
    item = WindowDataset(write_store(TEN), WindowConfig(4))[0]
    item["input_ids"].zero_()
    assert item["labels"].tolist() == [1, 2, 3, 4]


def test_pickle_is_small_and_complete(write_store):
    dataset = make(write_store(*[np.arange(100)] * 5000), 16, random_offset=True, thinning=0.5)
    dataset.set_epoch(4)
    raw = pickle.dumps(dataset)
    assert len(raw) < 5_000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy = pickle.loads(raw)
    assert copy.epoch == 4
    assert len(copy) == len(dataset)
    assert (copy.starts() == dataset.starts()).all()


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_running_workers_see_the_epoch(write_store, context):
    dataset = make(write_store(range(2000)), 16, random_offset=True)
    loader = DataLoader(dataset, batch_size=64, num_workers=1, persistent_workers=True, multiprocessing_context=context)
    for epoch in (0, 3):
        dataset.set_epoch(epoch)
        seen = torch.cat([batch["input_ids"][:, 0] for batch in loader])
        assert seen.tolist() == dataset.starts().tolist()


def test_dataset_refuses_other_arguments(write_store):
    with pytest.raises(TypeError, match=r"`store` .*TokenStore\.open"):
        WindowDataset("path", WindowConfig(4))
    with pytest.raises(TypeError, match="`config` must be a WindowConfig, got 4"):
        WindowDataset(write_store(TEN), 4)


def test_dataset_shows_what_it_is_made_of(write_store):
    store, config = write_store(TEN), WindowConfig(4)
    dataset = WindowDataset(store, config)
    assert (dataset.seq_len, dataset.config, dataset.store) == (4, config, store)
    assert "2 windows" in repr(dataset)


@pytest.mark.parametrize("documents", [4, 400])
def test_a_batch_carries_its_tokens_and_ids_alone_whatever_the_number_of_windows(write_store, documents):
    store = write_store(*[list(range(1, 41))] * documents)
    dataset = WindowDataset(store, WindowConfig(seq_len=8))
    (batch, *_) = DataLoader(dataset, batch_size=4, sampler=AdaptiveSampler(dataset, seed=0))
    # Inputs, labels, documents and positions of eight tokens, and the id: nothing that grows with N.
    assert all(value.shape in ((4, 8), (4,)) for value in batch.values())
    assert len(pickle.dumps(batch)) < 4 * 5 * 8 * 8 + 4000


def test_spawned_workers_get_the_bits_of_thinning_and_no_tokens(write_store, monkeypatch):
    store = write_store(range(60_000))
    dataset = make(store, 4, thinning=0.3, random_offset=True)
    expected = dataset.read(range(len(dataset)))["input_ids"]
    sizes = []
    real = WindowDataset.__getstate__

    def watched(self):
        state = real(self)
        sizes.append(state["bits"].numel())
        assert state["bits"].is_shared()
        return state

    monkeypatch.setattr(WindowDataset, "__getstate__", watched)
    loader = DataLoader(dataset, batch_size=512, num_workers=2, multiprocessing_context="spawn")
    seen = torch.cat([batch["input_ids"] for batch in loader])
    assert (seen.numpy() == expected).all()
    assert sizes == [dataset._kept.bits.size] * 2
    monkeypatch.undo()
    assert len(pickle.dumps(dataset)) < 5_000


@pytest.mark.parametrize("change", ["append", "same size", "exchange"])
def test_a_store_that_changes_under_a_dataset_is_an_error(write_store, change):
    store = write_store(range(1000))
    dataset = make(store, 4)
    carried = pickle.dumps(dataset)
    dataset.read([0])
    file = store.path / "tokens.bin"
    raw = file.read_bytes()
    if change == "append":
        with file.open("ab") as opened:
            opened.write(b"\0\0")
    elif change == "same size":
        file.write_bytes(raw[::-1])
    else:
        (store.path / "other").write_bytes(raw)
        (store.path / "other").replace(file)
    with pytest.raises(StoreError, match=r"`store` must stay as it was .*tokens\.bin' of \d+ bytes for \d+, changed"):
        dataset.read([0])
    with pytest.raises(StoreError):
        pickle.loads(carried).read([0])


def test_a_deleted_store_is_read_to_the_end(write_store):
    store = write_store(range(1000))
    dataset = make(store, 4)
    for file in store.path.iterdir():
        file.unlink()
    assert dataset[3]["input_ids"].tolist() == [12, 13, 14, 15]


def read_many_batches(store, batches):
    dataset = pickle.loads(pickle.dumps(make(store, 16, random_offset=True, thinning=0.9)))
    handles = len(os.listdir("/proc/self/fd"))
    ids = np.arange(8)
    for batch in range(batches):
        dataset.set_epoch(batch)
        dataset.__getitems__(ids)
        if batch % 1000 == 0:
            dataset = pickle.loads(pickle.dumps(dataset))
    return len(os.listdir("/proc/self/fd")) - handles


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files by /proc")
def test_no_file_stays_open_over_many_batches(write_store):
    assert read_many_batches(write_store(range(5000)), 3_000) <= 0


@pytest.mark.soak
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files by /proc")
def test_no_file_stays_open_over_a_hundred_thousand_batches(write_store):
    assert read_many_batches(write_store(range(5000)), 100_000) <= 0
