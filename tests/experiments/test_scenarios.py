import numpy as np
import pytest

from adaptive_sampling import TokenStore
from experiments.scenarios import redundant

EOS = 0


@pytest.fixture
def source(tmp_path):
    rng = np.random.default_rng(0)
    documents = [rng.integers(1, 500, n) for n in rng.integers(200, 600, 150)]
    return TokenStore.write(
        tmp_path / "source", documents, vocab_size=500, eos_id=EOS, sources=["a" if i % 3 else "b" for i in range(150)]
    )


def documents_of(store):
    starts = store.document_starts
    return [np.asarray(store.tokens[a:b]) for a, b in zip(starts, store.document_ends, strict=True)]


def test_redundant_keeps_all_text_and_makes_half_of_it_near_copies_of_few_documents(source, tmp_path):
    mixed = redundant(source, tmp_path / "mixed", copied_documents=0.02)
    originals = {d.tobytes() for d in documents_of(source)}
    kept = [d for d in documents_of(mixed) if d.tobytes() in originals]
    copies = [d for d in documents_of(mixed) if d.tobytes() not in originals]
    assert {d.tobytes() for d in kept} == originals
    share = sum(map(len, copies)) / mixed.num_tokens
    assert share == pytest.approx(0.5, abs=0.01)
    by_length = {len(d): d for d in documents_of(source)}
    changed = np.mean([(copy != by_length[len(copy)]).mean() for copy in copies])
    assert len({len(copy) for copy in copies}) == 3
    # About 33,000 tokens: the standard deviation of the share changed is 0.001.
    assert changed == pytest.approx(0.03, abs=0.005)
    assert all(copy[-1] == EOS and (copy[:-1] != EOS).all() for copy in copies)
    assert mixed.source_names == ["b", "a"] or mixed.source_names == ["a", "b"]


@pytest.mark.parametrize("share", [0.0, 1.0, -1])
def test_redundant_refuses_a_share_out_of_range(source, tmp_path, share):
    with pytest.raises(ValueError, match=f"`share` must be between 0 and 1, got {share}"):
        redundant(source, tmp_path / "mixed", share=share)
    assert not (tmp_path / "mixed").exists()
