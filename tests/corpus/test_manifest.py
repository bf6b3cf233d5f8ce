from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.corpus.manifest import (
    ManifestRow,
    content_hash,
    read_manifest,
    row_of_document,
    split_of,
    write_manifest,
)


def test_content_hash_ignores_line_ends_outer_space_and_composition():
    assert content_hash("é\r\nx \n") == content_hash(" e\u0301\nx")
    assert content_hash("a b") != content_hash("a  b")


@given(st.text(), st.integers(0, 5))
def test_split_is_nested_and_follows_content(text, seed):
    small, large = (split_of(content_hash(text), validation_fraction=share, seed=seed) for share in (0.2, 0.6))
    assert not (small == "validation" and large == "train")
    assert split_of(content_hash(text), validation_fraction=0.0, seed=seed) == "train"


def test_split_holds_out_the_expected_share():
    held = sum(split_of(content_hash(str(n)), validation_fraction=0.1, seed=1) == "validation" for n in range(2000))
    # binomial: mean 200, standard deviation 13.4; four of them
    assert abs(held - 200) < 54
    other = [split_of(content_hash(str(n)), validation_fraction=0.5, seed=2) for n in range(50)]
    assert other != [split_of(content_hash(str(n)), validation_fraction=0.5, seed=3) for n in range(50)]


def test_write_manifest_comes_back_the_same(tmp_path):
    rows = [
        ManifestRow(
            key, "s", content_hash(key), len(key), 1, 7, True, "", "train", confidence=0.25, document=at, parts=1
        )
        for at, key in enumerate(("a", "ü", ""))
    ]
    write_manifest(tmp_path / "m.parquet", rows)
    assert read_manifest(tmp_path / "m.parquet") == rows
    assert row_of_document(tmp_path / "m.parquet", "train", 1) == vars(rows[1])
    assert row_of_document(tmp_path / "m.parquet", "validation", 1) is None
    write_manifest(tmp_path / "empty.parquet", [])
    assert read_manifest(tmp_path / "empty.parquet") == []
