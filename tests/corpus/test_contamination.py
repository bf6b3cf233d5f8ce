import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.corpus import TokenStore, audit_contamination
from adaptive_sampling.corpus import contamination as module
from adaptive_sampling.corpus.contamination import clean_ranges, contaminated_starts, ngram_hashes


def store(path, documents, sources=None):
    return TokenStore.write(path, documents, vocab_size=50, eos_id=0, sources=sources, append_eos=False)


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 4))
def test_equal_runs_have_equal_hashes_and_others_do_not(tokens, ngram):
    runs = [tuple(tokens[at : at + ngram]) for at in range(len(tokens) - ngram + 1)]
    hashes = ngram_hashes(np.array(tokens, np.uint16), ngram).tolist()
    assert len(hashes) == len(runs)
    assert len(set(hashes)) == len(set(runs)) == len(set(zip(runs, hashes, strict=True)))


@pytest.mark.parametrize("block", [1 << 21, 7])
def test_contaminated_starts_equal_a_search_by_hand(tmp_path, monkeypatch, block):
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_HELD_OUT_BLOCK", block + 4)
    rng = np.random.default_rng(0)
    train = [rng.integers(0, 3, length).tolist() for length in (30, 2, 0, 25)]
    held_out = [rng.integers(0, 3, length).tolist() for length in (20, 1, 33)]
    flags = contaminated_starts(store(tmp_path / "t", train), store(tmp_path / "v", held_out), ngram=4)
    known = {tuple(d[at : at + 4]) for d in train for at in range(len(d) - 3)}
    wanted = [at + 4 <= len(d) and tuple(d[at : at + 4]) in known for d in held_out for at in range(len(d))]
    assert flags.tolist() == wanted
    assert any(wanted)
    assert not all(wanted)


def test_audit_counts_windows_that_hold_a_whole_run_per_source(tmp_path):
    train = store(tmp_path / "t", [np.arange(1, 41)])
    held_out = store(
        tmp_path / "v",
        [[*range(1, 33), *[0] * 32], [*[0] * 20, *range(1, 33), *[0] * 12], [*range(1, 32), 0], [0]],
        sources=["a", "b", "b", "c"],
    )
    found = audit_contamination(train, held_out, seq_len=32)
    assert [(row.source, row.windows, row.contaminated) for row in found] == [("a", 2, 1), ("b", 3, 0), ("c", 1, 0)]
    wide = audit_contamination(train, held_out, seq_len=64)
    assert [row.contaminated for row in wide] == [1, 1, 0]
    assert wide[0].share == 1.0


def test_clean_ranges_leave_no_token_of_a_known_run():
    flags = np.zeros(100, bool)
    flags[[5, 40]] = True
    ranges, cut = clean_ranges(flags, 10, ngram=12)
    assert ranges == [(20, 40), (60, 100)]
    assert cut == 4


@pytest.mark.parametrize("settings", [{"seq_len": 0}, {"ngram": 0}, {"seq_len": True}, {"seq_len": 31}])
def test_audit_refuses_bad_numbers(tmp_path, settings):
    empty = store(tmp_path / "t", [[1]])
    with pytest.raises(ValueError, match=f"`{next(iter(settings))}`"):
        audit_contamination(empty, empty, **settings)
