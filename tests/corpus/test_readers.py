import pytest

from adaptive_sampling.corpus import Document, read_text_files


def test_read_text_files_sorted_and_whole(tmp_path):
    (tmp_path / "b.txt").write_bytes("é\r\n".encode())
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone")
    (tmp_path / "c.txt").mkdir()
    found = list(read_text_files("mine", f"{tmp_path}/*.txt"))
    assert found == [
        Document("mine", (tmp_path / "a.txt").as_posix(), "one"),
        Document("mine", (tmp_path / "b.txt").as_posix(), "é\r\n"),
    ]


def test_read_text_files_names_a_pattern_without_files(tmp_path):
    with pytest.raises(ValueError, match=r"none\*\.txt.*matches none"):
        read_text_files("mine", f"{tmp_path}/none*.txt")


def test_read_text_files_names_a_file_that_is_not_utf8(tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"ab\xff")
    documents = read_text_files("mine", f"{tmp_path}/*.txt")
    with pytest.raises(ValueError, match=r"bad\.txt.*0xff at offset 2.*iconv"):
        next(documents)


def test_read_text_files_names_a_file_that_is_gone(tmp_path):
    (tmp_path / "gone.txt").write_text("x")
    documents = read_text_files("mine", f"{tmp_path}/*.txt")
    (tmp_path / "gone.txt").unlink()
    with pytest.raises(ValueError, match=r"gone\.txt.*No such file"):
        next(documents)


def test_read_text_files_needs_a_source_name(tmp_path):
    with pytest.raises(ValueError, match="`source_name`"):
        read_text_files("", "*")
