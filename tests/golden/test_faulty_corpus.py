"""A corpus with every fault: one fault, one row; what is said of it is frozen in faulty_corpus.json."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from adaptive_sampling.corpus import Cleaning, Source, TokenStore, prepare
from adaptive_sampling.corpus.manifest import read_manifest

GOLDEN = Path(__file__).with_name("faulty_corpus.json")
FIELDS = ("key", "source", "kept", "reason", "encoding", "cleaning", "duplicate_of", "near_copy_set", "parts", "tokens")
SENTENCE = "The quick brown fox jumps over the lazy dog, number {}. "


def write_corpus(folder):
    texts = folder / "texts"
    texts.mkdir(parents=True)
    plain = "".join(SENTENCE.format(number) for number in range(30))
    (texts / "a-plain.txt").write_text(plain)
    (texts / "b-copy.txt").write_text(f"\n{plain}\r\n")
    (texts / "c-near-copy.txt").write_text(plain.replace("number 7.", "number seven."))
    (texts / "d-empty.txt").write_text("")
    (texts / "e-blank.txt").write_text(" \n\n")
    (texts / "f-nul.txt").write_bytes(b"one\0two")
    (texts / "g-latin1.txt").write_bytes("caf\u00e9".encode("latin-1"))
    (texts / "h-utf16.txt").write_bytes("caf\u00e9 au lait".encode("utf-16"))
    (texts / "i-half-a-letter.txt").write_bytes(plain.encode() + b"\xc3")
    (texts / "j-cp1251.txt").write_bytes(("Все счастливые семьи похожи друг на друга. " * 5).encode("cp1251"))
    (texts / "k-binary.txt").write_bytes(bytes(range(128, 256)) * 4)
    (texts / "l-crlf.txt").write_bytes(b"line one\r\nline two\r\n")
    (texts / "m-short.txt").write_text("hi")
    (texts / "n-code.py").write_bytes(b"x = 1\r\n")
    (texts / "o-unprintable.txt").write_text("\x01\x02\x03 some \x04\x05\x06 text \x07")
    (texts / "p-long.txt").write_text("long " * 2000)
    (texts / "q-gone.txt").symlink_to("nowhere")
    (texts / "loop").symlink_to("..")
    lines = [
        json.dumps({"text": "a line"}),
        "not json",
        json.dumps({"texts": "other field"}),
        json.dumps({"text": None}),
        '{"text": "\\ud800"}',
        json.dumps({"text": "x" * 9000}),
        json.dumps({"text": "a last line"}),
    ]
    (folder / "lines.jsonl").write_text("\n".join(lines))
    packed = gzip.compress(("\n".join(json.dumps({"text": f"row {n} {n * n}"}) for n in range(3)) + "\n").encode())
    (folder / "packed.jsonl.gz").write_bytes(packed[:-6])
    with pa.CompressedOutputStream(str(folder / "packed.jsonl.zst"), "zstd") as file:
        file.write(json.dumps({"text": "a row from zstandard"}).encode())
    (folder / "rows.parquet").write_bytes(b"PAR1 this is none")


def test_every_fault_is_recorded_with_its_document(tmp_path, monkeypatch, request):
    write_corpus(tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    cleaning = Cleaning.parse("crlf,min-chars:4,printable:0.9")
    sources = [
        Source("texts", "in/**/*.txt", cleaning=cleaning, max_document_bytes=5000),
        Source("code", "in/texts/*.py", kind="code"),
        Source("lines", "in/*.jsonl*", max_document_bytes=5000),
        Source("rows", "in/*.parquet"),
    ]
    summary = prepare(sources, "out", tokenizer="bytes", validation_fraction=0)
    rows = [{field: getattr(row, field) for field in FIELDS} for row in read_manifest("out/manifest.parquet")]
    assert rows == json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert sum(source.documents for source in summary.sources) == len(rows)
    store = TokenStore.open("out/train", verify="hash")
    assert store.num_documents == sum(row["kept"] for row in rows)
    assert store.check_eos().agrees


@pytest.mark.parametrize(
    "fault", ["empty", "NUL", "gz", "not JSON", "5000", "directory loop", "is not UTF-8", "Parquet"]
)
def test_the_golden_file_names_every_kind_of_fault(fault):
    assert any(fault in row["reason"] for row in json.loads(GOLDEN.read_text(encoding="utf-8")))
