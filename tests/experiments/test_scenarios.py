import gzip

import numpy as np
import pytest

from adaptive_sampling import TokenStore
from experiments import text_runs
from experiments.scenarios import clean, noisy, redundant, small, tail

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


def test_clean_leaves_out_what_redundant_put_in(source, tmp_path):
    mixed = redundant(source, tmp_path / "mixed", copied_documents=0.02)
    cleaned = clean(mixed, tmp_path / "clean", seq_len=32)
    kept = {d.tobytes() for d in documents_of(cleaned)}
    assert cleaned.num_tokens < 0.65 * mixed.num_tokens
    # Whatever was no original of a copy is no near-copy of anything, and stays.
    originals = [d.tobytes() for d in documents_of(source)]
    assert sum(d in kept for d in originals) >= len(originals) - 3


def test_noisy_adds_soup_with_the_text_s_own_frequencies(source, tmp_path):
    mixed = noisy(source, tmp_path / "noisy", share=0.3)
    real = {d.tobytes() for d in documents_of(source)}
    soup = [d for d in documents_of(mixed) if d.tobytes() not in real]
    assert sum(map(len, soup)) / mixed.num_tokens == pytest.approx(0.3, abs=0.01)
    assert all(d[-1] == EOS and (d[:-1] != EOS).all() for d in soup)
    assert len(documents_of(mixed)) == 150 + len(soup)
    drawn = np.bincount(np.concatenate(soup), minlength=500)[1:]
    counts = np.bincount(np.asarray(source.tokens), minlength=500)[1:]
    expected = drawn.sum() * counts / counts.sum()
    # Chi-square over 498 degrees of freedom: mean 498, standard deviation 32.
    assert abs(((drawn - expected) ** 2 / expected).sum() - 498) < 5 * 32


@pytest.mark.parametrize("share", [0.5, 0.93])
def test_tail_gives_the_largest_source_its_share(source, tmp_path, share):
    mixed = tail(source, tmp_path / "tail", share=share)
    lengths = np.diff(mixed.document_ends, prepend=0)
    first = mixed.source_names.index("a")
    assert lengths[mixed.document_sources == first].sum() / mixed.num_tokens == pytest.approx(share, abs=0.03)
    kept = {d.tobytes() for d in documents_of(source)}
    assert all(d.tobytes() in kept for d in documents_of(mixed))


def test_small_keeps_about_as_many_tokens_as_asked(source, tmp_path):
    kept = small(source, tmp_path / "small", tokens=9000)
    assert 9000 <= kept.num_tokens < 9600
    with pytest.raises(ValueError, match="got 99999999"):
        small(source, tmp_path / "too much", tokens=99999999)


def test_folder_of_text_has_a_source_per_folder_and_file(tmp_path):
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "one.txt").write_text("A short book.")
    (tmp_path / "wiki-a.txt").write_text("An article.\n\n" * 3000)
    (tmp_path / "wiki-b.txt").write_text("Another.")
    (tmp_path / "picture.png").write_bytes(b"\xff\xd8")
    documents = list(text_runs.text_documents(str(tmp_path)))
    assert {d.source for d in documents} == {"books", "wiki"}
    pieces = [d.text for d in documents if "wiki-a" in d.key]
    assert len(pieces) == 3
    assert "".join(pieces) == "An article.\n\n" * 3000
    with pytest.raises(ValueError, match=r"`text` must lead to UTF-8 text, got .*gone"):
        list(text_runs.text_documents(str(tmp_path / "gone")))


def test_text_by_pattern_reads_packed_files_once_and_takes_a_part(tmp_path):
    for number in range(200):
        (tmp_path / f"page{number}.1.gz").write_bytes(gzip.compress(f"page {number}".encode()))
    (tmp_path / "other-name.1.gz").symlink_to(tmp_path / "page7.1.gz")
    (tmp_path / "broken.1.gz").write_bytes(b"no archive")
    (tmp_path / "cut.1.gz").write_bytes(gzip.compress(b"page 7" * 99)[:-9])
    pages = {"manuals": str(tmp_path / "*.1.gz")}
    documents = list(text_runs.text_documents(pages))
    assert sorted(d.text for d in documents) == sorted(f"page {number}" for number in range(200))
    assert {d.source for d in documents} == {"manuals"}
    fewer, fewest = ({d.key for d in text_runs.text_documents(pages, part)} for part in (0.5, 0.2))
    assert fewest < fewer < {d.key for d in documents}
    assert 70 < len(fewer) < 130


def test_patterns_of_other_text_make_another_corpus(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for number in range(30):
            words = " ".join(f"{folder}{number * k % 97}" for k in range(200 if folder == "one" else 400))
            (tmp_path / folder / f"{number}.txt").write_text(words)
    one, two = (
        text_runs.scenario_data(
            "real", text={"pages": f"{tmp_path}/{folder}/*.txt"}, embedded=False, root=str(tmp_path / "runs")
        )
        for folder in ("one", "two")
    )
    assert len(two.dataset) > 1.5 * len(one.dataset)


def test_scenario_data_writes_once_and_weighs_sources_as_held_out(tmp_path, monkeypatch):
    for number in range(40):
        for source_name in ("a", "b"):
            (tmp_path / "text" / source_name).mkdir(parents=True, exist_ok=True)
            words = " ".join(f"{source_name}{number * k % 97}" for k in range(300 if source_name == "a" else 100))
            (tmp_path / "text" / source_name / f"{number}.txt").write_text(words)
    arguments = {"text": str(tmp_path / "text"), "embedded": False, "root": str(tmp_path / "runs")}
    data = text_runs.scenario_data("noisy", **arguments)
    assert set(data.validation) == {"a", "b"}
    # Fewer windows than the limit are all held out, so that their numbers are the shares.
    assert data.shares == {name: len(loader.dataset) for name, loader in data.validation.items()}
    assert "a" in data.decode(data.dataset[0]["input_ids"].tolist())
    monkeypatch.setattr(text_runs, "prepare", None)
    again = text_runs.scenario_data("noisy", **arguments)
    assert len(again.dataset) == len(data.dataset) > len(text_runs.scenario_data("real", **arguments).dataset)
    with pytest.raises(ValueError, match="got 'dense'"):
        text_runs.scenario_data("dense", **arguments)
