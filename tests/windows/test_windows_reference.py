import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import slow_windows

from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.windows import WindowConfig, WindowDataset, audit

DOCUMENTS = st.lists(st.tuples(st.integers(0, 17), st.sampled_from("xyz")), max_size=9)


@st.composite
def configs(draw):
    pack = draw(st.sampled_from(["none", "concat", "best_fit"]))
    common = {
        "seq_len": draw(st.integers(1, 8)),
        "pack": pack,
        "min_length": draw(st.sampled_from([0, 0, 1, 2, 5])),
        "mask_repeated_targets": draw(st.booleans()),
        "mask_cross_document_targets": draw(st.booleans()),
        "tail": draw(st.sampled_from(["drop", "pad"] if pack == "best_fit" else ["drop", "cover", "pad"])),
    }
    if pack == "best_fit":
        return WindowConfig(**common)
    return WindowConfig(
        **common,
        stride=draw(st.one_of(st.none(), st.integers(1, 10))),
        offset=draw(st.sampled_from([0, 0, 1, 3])),
        align=draw(st.sampled_from(["none", "document", "paragraph"])),
    )


def make(store, config):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return WindowDataset(store, config)


@settings(max_examples=150)
@given(DOCUMENTS, configs(), st.sets(st.integers(0, 80), max_size=12))
def test_all_windows_equal_the_slow_list(tmp_path_factory, documents, config, paragraphs):
    ids = iter(range(1, 10**6))
    texts = [[next(ids) for _ in range(length)] for length, _ in documents]
    sources = [source for _, source in documents]
    store = TokenStore.write(
        tmp_path_factory.mktemp("s") / "s", texts, vocab_size=300, eos_id=0, sources=sources, append_eos=False
    )
    store.paragraph_starts = np.array(sorted(paragraphs), np.int64)
    slow = slow_windows(texts, sources, config, 0, paragraphs if config.align == "paragraph" else ())
    dataset = make(store, config)
    assert len(dataset) == len(slow)
    order = np.arange(len(slow))[::-1]
    batch = dataset.read(order)
    assert batch["input_ids"].tolist() == [slow[k].inputs for k in order]
    assert batch["labels"].tolist() == [slow[k].labels for k in order]
    assert dataset.starts(order).tolist() == [slow[k].start for k in order]
    assert dataset.documents(order).tolist() == [slow[k].document for k in order]
    assert dataset.valid_targets().tolist() == [sum(label != -100 for label in one.labels) for one in slow]
    for row, k in enumerate(order):
        shown = len(slow[k].positions)
        assert batch["document_ids"][row, :shown].tolist() == slow[k].document_ids
        assert batch["position_ids"][row, :shown].tolist() == slow[k].positions
    # Every token is its own place in the store plus one, so labels say which tokens the spans must hold.
    rows, starts, ends = dataset.target_spans(order)
    found = [[] for _ in order]
    for row, start, end in zip(rows, starts, ends, strict=True):
        found[row] += range(start + 1, end + 1)
    assert found == [[label for label in slow[k].labels if label != -100] for k in order]


@settings(max_examples=60)
@given(DOCUMENTS, configs(), st.integers(0, 3), st.sampled_from([0.0, 0.3, 1.0]), st.booleans(), st.booleans())
def test_every_epoch_reads_text_that_is_there(tmp_path_factory, documents, config, epoch, dropout, shuffle, random):
    config = WindowConfig(**{**vars(config), "offset": 0 if random else config.offset})
    settings = {"random_offset": random}
    if config.pack == "concat":
        settings |= {"eos_dropout": dropout, "reshuffle_documents": shuffle}
    elif config.pack == "best_fit":
        settings = {}
    moving = WindowConfig(**{**vars(config), **settings})
    ids = iter(range(1, 10**6))
    texts = [[*(next(ids) for _ in range(length)), 0] for length, _ in documents]
    sources = [source for _, source in documents]
    store = TokenStore.write(
        tmp_path_factory.mktemp("s") / "s", texts, vocab_size=300, eos_id=0, sources=sources, append_eos=False
    )
    store.paragraph_starts = np.arange(0, 300, 7)
    fixed, dataset = make(store, config), make(store, moving)
    dataset.set_epoch(epoch)
    assert len(dataset) == len(fixed)
    batch = dataset.read(np.arange(len(dataset)))
    unmasked = make(store, WindowConfig(**{**vars(moving), "mask_repeated_targets": False}))
    unmasked.set_epoch(epoch)
    labels = unmasked.read(np.arange(len(dataset)))["labels"]
    masked = batch["labels"] == -100
    assert (batch["labels"][~masked] == labels[~masked]).all()
    assert ((~masked).sum(axis=1) == dataset.valid_targets()).all()
    for row, places in enumerate(np.arange(len(dataset))):
        own = [token for token in batch["input_ids"][row].tolist() if token]
        documents_of = [next(k for k, text in enumerate(texts) if token in text) for token in own]
        # Within a document tokens go up one by one, and no document comes twice.
        for document in dict.fromkeys(documents_of):
            part = [token for token, k in zip(own, documents_of, strict=True) if k == document]
            assert part == list(range(part[0], part[0] + len(part)))
        assert len(set(own)) == len(own)
        assert len({sources[k] for k in documents_of}) <= 1
        assert places == batch["window_id"][row]
    assert audit(dataset).windows == len(dataset)


def test_bins_of_documents_that_share_windows(tmp_path):
    lengths = [5, 3, 6, 2, 1]
    texts = [[10 * (k + 1) + place for place in range(length)] for k, length in enumerate(lengths)]
    store = TokenStore.write(tmp_path / "s", texts, vocab_size=100, eos_id=0, append_eos=False)
    with pytest.warns(UserWarning, match="1 of 3 windows hold a single token and have no target"):
        dataset = WindowDataset(store, WindowConfig(8, pack="best_fit"))
    batch = dataset.read([0, 1, 2])
    assert batch["input_ids"].tolist() == [
        [10, 11, 12, 13, 14, 20, 21, 22],
        [30, 31, 32, 33, 34, 35, 40, 41],
        [50, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert batch["labels"][0].tolist() == [11, 12, 13, 14, 20, 21, 22, -100]
    assert (batch["input_ids"] == 0).sum() == 7
    assert (batch["input_ids"] != 0).sum() == 17
    apart = WindowDataset(store, WindowConfig(8, pack="best_fit", mask_cross_document_targets=True, min_length=2))
    assert apart.read([0])["labels"].tolist() == [[11, 12, 13, 14, -100, 21, 22, -100]]
    assert apart.cu_seqlens([0, 1]).tolist() == [0, 5, 8, 14, 16]
    full = TokenStore.write(tmp_path / "t", [[1] * 4, [2] * 5, [3] * 3, [4] * 4], vocab_size=9, eos_id=0)
    assert len(WindowDataset(full, WindowConfig(9, pack="best_fit"))) == 3
