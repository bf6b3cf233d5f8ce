import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.corpus.manifest import DocumentFilter, content_hash, read_manifest, split_of, write_manifest


def test_content_hash_ignores_line_ends_outer_space_and_composition():
    assert content_hash("é\r\nx \n") == content_hash(" e\u0301\nx")
    assert content_hash("a b") != content_hash("a  b")


def test_rows_keep_the_first_of_equal_documents():
    rows_of = DocumentFilter(validation_fraction=0.5, seed=0)
    rows = [rows_of.row(key, "s", text) for key, text in [("a", "x"), ("b", "é\n"), ("c", "x\n"), ("d", " \n")]]
    assert [(row.kept, row.reason) for row in rows] == [
        (True, ""),
        (True, ""),
        (False, "exact duplicate of a"),
        (False, "empty"),
    ]
    assert (rows[1].bytes, rows[1].characters) == (3, 2)
    assert rows[0].split == rows[2].split


def test_rows_refuse_a_key_twice_and_text_that_is_no_unicode():
    rows_of = DocumentFilter(validation_fraction=0.5, seed=0)
    rows_of.row("a", "s", "x")
    with pytest.raises(ValueError, match="unique keys, got 'a' twice"):
        rows_of.row("a", "s", "y")
    with pytest.raises(ValueError, match="surrogate in 'b' at character 2"):
        rows_of.row("b", "s", "xy\ud800")


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
    rows_of = DocumentFilter(validation_fraction=0.5, seed=0)
    rows = [rows_of.row(key, "s", key) for key in ("a", "ü", "")]
    rows[0].tokens = 7
    write_manifest(tmp_path / "m.parquet", rows)
    assert read_manifest(tmp_path / "m.parquet") == rows
    write_manifest(tmp_path / "empty.parquet", [])
    assert read_manifest(tmp_path / "empty.parquet") == []
