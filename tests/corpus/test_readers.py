import gzip
import json
import os
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from adaptive_sampling.corpus import Document, Source, read_text_files
from adaptive_sampling.corpus import readers as readers_module
from adaptive_sampling.corpus import sources as sources_module
from adaptive_sampling.corpus._globs import find_files
from adaptive_sampling.corpus._tasks import _row
from adaptive_sampling.corpus.readers import check_first, read_unit

DATA = Path(__file__).parent / "data"  # saved_dataset and saved_splits were written by datasets' save_to_disk


def read(source):
    return [document for unit in source.units() for document in read_unit(unit, source)]


def found(source):
    return [(document.key, document.text, document.reason) for document in read(source)]


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


LINES = [
    '{"text": "one", "n": 1}',
    "",
    '{"text": "zwei \\u00e9"}',
    "{broken",
    '["text"]',
    '{"n": 2}',
    '{"text": 5}',
    '{"text":"é"}',
]
WANTED = [
    (1, "one", ""),
    (3, "zwei é", ""),
    (4, None, "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    (5, None, "not a JSON object: list"),
    (6, None, "no field 'text'"),
    (7, None, "a number in field 'text'"),
    (8, "é", ""),
]


def _zst(path, raw):
    with pa.CompressedOutputStream(str(path), "zstd") as file:
        file.write(raw)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.jsonl", lambda path, raw: path.write_bytes(raw)),
        ("a.jsonl.gz", lambda path, raw: path.write_bytes(gzip.compress(raw))),
        ("a.jsonl.zst", _zst),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_json_lines_are_documents_and_faults_stay_with_their_line(tmp_path, name, write, end):
    write(tmp_path / name, end.join(LINES).encode())
    path = (tmp_path / name).as_posix()
    assert found(Source("s", f"{tmp_path}/*")) == [(f"{path}:{line}", text, why) for line, text, why in WANTED]


@pytest.mark.parametrize("piece", [1, 7, 30, 1000])
def test_json_lines_are_the_same_read_in_pieces(tmp_path, monkeypatch, piece):
    (tmp_path / "a.jsonl").write_text("\n".join(LINES) + "\n")
    source = Source("s", f"{tmp_path}/*")
    whole = read(source)
    monkeypatch.setattr(sources_module, "PIECE_BYTES", piece)
    monkeypatch.setattr(readers_module, "_BLOCK_BYTES", 5)
    units = source.units()
    assert (len(units) > 1) == (piece < 1000)
    assert read(source) == whole
    assert sum(unit.size for unit in units) == (tmp_path / "a.jsonl").stat().st_size


def test_a_long_line_or_file_is_left_out_in_constant_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(readers_module, "_BLOCK_BYTES", 16)
    (tmp_path / "a.jsonl").write_text('{"text": "' + "x" * 200 + '"}\n{"text": "short"}\n' + "y" * 70)
    (tmp_path / "b.txt").write_text("z" * 65)
    reasons = [document.reason for document in read(Source("s", f"{tmp_path}/*", max_document_bytes=64))]
    assert reasons == ["line of 212 bytes, more than 64", "", "line of 70 bytes, more than 64", "more than 64 bytes"]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_truncated_file_keeps_what_came_before(tmp_path, suffix):
    raw = b"".join(json.dumps({"text": os.urandom(3000).hex()}).encode() + b"\n" for _ in range(500))
    if suffix == "gz":
        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(raw))
    else:
        _zst(tmp_path / "a.jsonl.zst", raw)
    file = tmp_path / f"a.jsonl.{suffix}"
    file.write_bytes(file.read_bytes()[:-1000])
    documents = read(Source("s", str(file)))
    assert len(documents) > 100
    assert [document.reason for document in documents[:-1]] == [""] * (len(documents) - 1)
    assert documents[-1].reason == f"truncated or damaged {suffix} file"
    (tmp_path / f"b.txt.{suffix}").write_bytes(file.read_bytes())
    assert read(Source("s", f"{tmp_path}/b*"))[0].reason == f"truncated or damaged {suffix} file"


@pytest.mark.parametrize("block", [1 << 20, 1000])
@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_small_truncated_file_keeps_what_came_before(tmp_path, monkeypatch, suffix, block):
    monkeypatch.setattr(readers_module, "_BLOCK_BYTES", block)
    lines = [json.dumps({"text": os.urandom(3000).hex()}) for _ in range(100)]
    file = tmp_path / f"a.jsonl.{suffix}"
    raw = "".join(f"{line}\n" for line in lines).encode()
    if suffix == "gz":
        file.write_bytes(gzip.compress(raw))
    else:
        _zst(file, raw)
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    documents = read(Source("s", str(file)))
    assert len(documents) > 35  # zstd packs 128 kB at a time, of which a broken one is lost
    assert [document.text for document in documents[:-1]] == [
        json.loads(line)["text"] for line in lines[: len(documents) - 1]
    ]
    assert documents[-1].reason == f"truncated or damaged {suffix} file"


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_nothing_is_read_of_a_file_with_a_changed_bit(tmp_path, suffix):
    rng = random.Random(0)
    lines = [json.dumps({"text": " ".join(rng.choices(["alpha", "beta", "gamma"], k=300))}) for _ in range(50)]
    raw = "".join(f"{line}\n" for line in lines).encode()
    if suffix == "gz":
        packed = bytearray(gzip.compress(raw))
    else:
        _zst(tmp_path / "whole.zst", raw)
        packed = bytearray((tmp_path / "whole.zst").read_bytes())
    file = tmp_path / f"a.jsonl.{suffix}"
    seen = 0
    for at in range(20, len(packed) - 20, len(packed) // 40):
        packed[at] ^= 4
        file.write_bytes(packed)
        packed[at] ^= 4
        documents = read(Source("s", str(file)))
        if suffix == "gz" or len(documents) == 1:  # pyarrow writes zst without a checksum
            assert len(documents) == 1
            assert documents[0].reason.startswith(f"damaged {suffix} file, nothing of it is read: ")
            seen += 1
    assert seen > 5
    file.write_bytes(packed)
    assert len(read(Source("s", str(file)))) == 50


@pytest.mark.parametrize("content", ["", "\n \n\r\n"])
def test_files_without_a_document_leave_a_row_that_says_empty(tmp_path, content):
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.jsonl").write_text(content)
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(content.encode()))
    _zst(tmp_path / "d.jsonl.zst", content.encode())
    table = pa.table({"text": pa.array([], pa.string())})
    pyarrow.parquet.write_table(table, tmp_path / "e.parquet")
    with pa.ipc.new_file(str(tmp_path / "f.arrow"), table.schema) as writer:
        writer.write_table(table)
    documents = read(Source("s", f"{tmp_path}/*"))
    assert [document.key for document in documents] == [str(path) for path in sorted(tmp_path.iterdir())]
    assert [_row(document, Source("s", "*"), "s")[0]["reason"] for document in documents] == ["empty"] * 6
    with pytest.raises(ValueError, match=r"e\.parquet.*got 'other' where there are 'text'"):
        Source("s", f"{tmp_path}/*.parquet", text_field="other").units()


def test_blank_lines_at_the_start_of_a_file_in_pieces_are_not_an_empty_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sources_module, "PIECE_BYTES", 4)
    (tmp_path / "a.jsonl").write_text("\n" * 10 + '{"text": "x"}\n')
    assert [document.text for document in read(Source("s", f"{tmp_path}/*"))] == ["x"]


def test_parquet_rows_are_documents_by_row_group(tmp_path):
    table = pa.table({"body": ["a", None, "c", "d", "e"], "n": range(5)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    source = Source("s", f"{tmp_path}/*", text_field="body")
    assert len(source.units()) == 3
    assert [(text, why) for _, text, why in found(source)] == [
        ("a", ""),
        (None, "null in field 'body'"),
        ("c", ""),
        ("d", ""),
        ("e", ""),
    ]
    assert [document.position for document in read(source)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"`text_field`.*'text' where there are 'body', 'n'"):
        Source("s", f"{tmp_path}/*").units()


def test_damaged_parquet_and_arrow_are_faults(tmp_path):
    pyarrow.parquet.write_table(pa.table({"text": ["a" * 500]}), tmp_path / "a.parquet")
    raw = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(raw[:-5])
    (tmp_path / "c.arrow").write_bytes(b"nonsense")
    reasons = {Path(key).name.split(":")[0]: why for key, _, why in found(Source("s", f"{tmp_path}/*"))}
    assert reasons["a.parquet"] == ""
    assert reasons["b.parquet"] == "not a Parquet file, or cut off"
    assert reasons["c.arrow"].startswith("damaged arrow file: ")


@pytest.mark.parametrize("form", ["new_file", "new_stream"])
def test_arrow_files_of_both_forms_are_read(tmp_path, form):
    table = pa.table({"text": ["a", "b", "c"]})
    with getattr(pa.ipc, form)(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    assert [(text, key.rpartition(":")[2]) for key, text, _ in found(Source("s", f"{tmp_path}/*"))] == [
        ("a", "0"),
        ("b", "1"),
        ("c", "2"),
    ]


def test_saved_datasets_are_read_in_their_order():
    assert [text for _, text, _ in found(Source("s", str(DATA / "saved_dataset")))] == ["first row", "second row"]
    assert [text for _, text, _ in found(Source("s", str(DATA / "saved_splits")))] == ["d e f", "a b c"]
    with pytest.raises(ValueError, match="which is a folder"):
        Source("s", str(DATA)).units()


def test_a_first_line_without_the_field_is_refused_before_any_work(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "x", "id": 1}\n')
    source = Source("s", f"{tmp_path}/*")
    with pytest.raises(ValueError, match=r"a\.jsonl.*'text' where there are 'body', 'id'"):
        check_first(source.units()[0], source)
    fine = Source("s", f"{tmp_path}/*", text_field="body")
    check_first(fine.units()[0], fine)
    source = Source("s", str(DATA / "saved_dataset"), text_field="none")
    with pytest.raises(ValueError, match=r"'none' where there are 'text', 'n'"):
        check_first(source.units()[0], source)


def test_first_lines_with_no_text_in_the_field_are_refused_and_one_is_left_out(tmp_path):
    (tmp_path / "a.jsonl").write_text('{\n{"text": 5}\n{"text": [5]}\n{"other": "x"}\n')
    source = Source("s", f"{tmp_path}/*")
    with pytest.raises(ValueError, match=r"a field of text in .*a\.jsonl', got 'text', which is a number in row 2\."):
        check_first(source.units()[0], source)
    (tmp_path / "a.jsonl").write_text('{"text": 5}\n{"text": null}\n{"other": 1}\n{"text": "fine"}\n')
    (unit,) = source.units()
    check_first(unit, source)
    found = [(raw.text, raw.reason) for raw in read_unit(unit, source)]
    reasons = ["a number in field 'text'", "null in field 'text'", "no field 'text'"]
    assert found == [*((None, reason) for reason in reasons), ("fine", "")]


@pytest.mark.parametrize("text_field", ["n", "m"])
def test_a_column_of_something_else_than_text_is_refused(tmp_path, text_field):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"text": ["x"], "n": [1], "m": [[1.5]]})
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=rf"got '{text_field}', which is a column of (int64|list<)"):
        Source("s", f"{tmp_path}/*", text_field=text_field).units()
    assert Source("s", f"{tmp_path}/*").units()


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (pa.array([["a", "b"]]), "list<"),
        (pa.array([{"text": "a"}]), "struct<"),
        (pa.array([{b"a": "x"}], pa.map_(pa.binary(), pa.string())), "map<"),
        (pa.array([1]).dictionary_encode(), "dictionary<"),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_columns_made_of_strings_are_no_text(tmp_path, column, shown, suffix):
    table = pa.table({"text": column})
    if suffix == "parquet":
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    else:
        with pa.ipc.new_stream(str(tmp_path / "a.arrow"), table.schema) as writer:
            writer.write_table(table)
    source = Source("s", f"{tmp_path}/*")
    with pytest.raises(ValueError, match=rf"got 'text', which is a column of ({shown}|int64)"):
        check_first(source.units()[0], source)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a"]),
        pa.array(["a"], pa.large_string()),
        pa.array(["a"]).dictionary_encode(),
        pa.array([b"a"]),
        pa.array([b"a"], pa.large_binary()),
        pa.array([b"a"], pa.binary(1)),
    ],
    ids=lambda column: str(column.type)[:12],
)
def test_columns_of_text_and_bytes_are_read(tmp_path, column):
    pyarrow.parquet.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    (document,) = read(Source("s", f"{tmp_path}/*"))
    assert document.text == "a" or document.raw == b"a"


def test_find_files_walks_a_loop_once_and_reports_it(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.txt").write_text("x")
    (tmp_path / "a" / ".hidden").mkdir()
    (tmp_path / "a" / ".hidden" / "y.txt").write_text("y")
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path / "a")
    (tmp_path / "c").symlink_to(tmp_path / "a" / "b")
    (tmp_path / "a" / "gone.txt").symlink_to(tmp_path / "nowhere")
    result = find_files(f"{tmp_path}/**/*.txt")
    assert result.files == [f"{tmp_path}/a/b/x.txt", f"{tmp_path}/c/x.txt"]
    loops = [path for path, reason in result.faults if reason.startswith("directory loop")]
    assert loops == [f"{tmp_path}/a/b/up", f"{tmp_path}/c/up/b"]
    assert (f"{tmp_path}/a/gone.txt", "unreadable: a link to nothing, or in a circle") in result.faults


@pytest.mark.parametrize("pattern", ["*", "**", "**/*", "sub/*"])
def test_find_files_reports_a_link_to_itself_and_goes_on(tmp_path, pattern):
    (tmp_path / "sub").mkdir()
    for folder in (tmp_path, tmp_path / "sub"):
        (folder / "a.txt").write_text("x")
        (folder / "self").symlink_to("self")
    result = find_files(f"{tmp_path}/{pattern}")
    assert f"{tmp_path}/{'sub/' * ('sub' in pattern)}a.txt" in result.files
    assert {reason for _, reason in result.faults} == {"unreadable: a link to nothing, or in a circle"}


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="names of files are Unicode there")
def test_a_name_that_is_not_utf8_is_a_fault_and_the_other_files_are_read(tmp_path):
    raw = os.fsencode(tmp_path)
    os.mkdir(raw + b"/d\xff")
    for name in (b"/x\xff.txt", b"/y.txt", b"/d\xff/rows.jsonl"):
        with open(raw + name, "w") as file:
            file.write("fine")
    os.symlink("nothing", raw + b"/z\xff.txt")
    names = {key[len(str(tmp_path)) :]: reason for key, _, reason in found(Source("s", f"{tmp_path}/**"))}
    why = "the name of the file, or of a folder above it, is not UTF-8: rename it"
    gone = "unreadable: a link to nothing, or in a circle"
    assert names == {"/x\\xff.txt": why, "/d\\xff/rows.jsonl": why, "/y.txt": "", "/z\\xff.txt": gone}


@pytest.mark.parametrize(
    "pattern", ["*.txt", "**/*.txt", "**", "sub/?.txt", "sub/[ab].txt", "s*/**/b*", "sub/a.txt", "x/*"]
)
def test_find_files_equals_glob_where_there_are_no_loops(tmp_path, pattern):
    import glob

    for name in (
        "a.txt",
        "b.md",
        "sub/a.txt",
        "sub/b.txt",
        "sub/c.txt",
        "sub/deep/b.txt",
        ".dot/a.txt",
        "sub/.dot.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    wanted = sorted(path for path in glob.glob(f"{tmp_path}/{pattern}", recursive=True) if os.path.isfile(path))
    assert find_files(f"{tmp_path}/{pattern}").files == wanted


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"name": ""}, "`name`"),
        ({"kind": "prose"}, "`kind`.*'prose'"),
        ({"min_confidence": 2}, "`min_confidence`.*2"),
        ({"min_confidence": "h"}, "`min_confidence`.*'h'"),
        ({"cleaning": "crlf"}, r"`cleaning` must be a Cleaning, got 'crlf' for 's'\. Write"),
        ({"cleaning": None}, "`cleaning` must be a Cleaning, got None"),
        ({"pattern": Path("a")}, "`pattern` must be a str, got PosixPath"),
        ({"text_field": None}, "`text_field` must be a str, got None"),
        ({"license": 5}, "`license` must be a str, got 5"),
        ({"max_document_bytes": 0}, "`max_document_bytes`.*0"),
    ],
)
def test_source_refuses_bad_settings(settings, text):
    with pytest.raises((ValueError, TypeError), match=text):
        Source(**{"name": "s", "pattern": "*", **settings})
