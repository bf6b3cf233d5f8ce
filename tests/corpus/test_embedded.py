import itertools
import sysconfig

import pytest

from adaptive_sampling.corpus import embedded_documents
from adaptive_sampling.corpus.embedded import cut_docstring


@pytest.mark.parametrize(
    ("code", "rest", "docstring"),
    [
        ('"""Doc."""\nx = 1\n', "x = 1\n", "Doc."),
        ("#!x\n'''Two\nlines é'''\n\x0cx = 1\n", "#!x\n\x0cx = 1\n", "Two\nlines é"),
        ('"é" "b"; x = 1\n', "; x = 1\n", "éb"),
        ("x = 1\n", "x = 1\n", ""),
        ("5\n", "5\n", ""),
        ("", "", ""),
    ],
)
def test_cut_docstring_takes_exactly_the_docstring(code, rest, docstring):
    assert cut_docstring(code) == (rest, docstring)


def test_cut_docstring_refuses_what_is_no_code():
    with pytest.raises(SyntaxError):
        cut_docstring("x = (")
    with pytest.raises(UnicodeEncodeError):
        cut_docstring('"\\ud800"')


def test_embedded_documents_from_a_small_library(tmp_path, monkeypatch):
    files = {
        "b.py": '"""Prose of b."""\nb = 1\n',
        "a/x.py": "x = 2\n",
        "a/only.py": '"""Only prose."""\n',
        "test/t.py": "t = 1\n",
        "a/tests/t.py": "t = 1\n",
        "site-packages/s.py": "s = 1\n",
        "broken.py": "x = (\n",
        "c.txt": "text",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.py").write_bytes(b"x = '\xff'\n")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    found = [(document.source, document.key, document.text) for document in embedded_documents()]
    assert found[:2] == [("code", "stdlib/a/x.py", "x = 2\n"), ("code", "stdlib/b.py", "b = 1\n")]
    assert found[2:4] == [
        ("prose", "docstring/a/only.py", "Only prose."),
        ("prose", "docstring/b.py", "Prose of b."),
    ]
    assert all(key.startswith("topic/") for _, key, _ in found[4:])
    assert [key for _, key, _ in found[2:]] == sorted(key for _, key, _ in found[2:])


def test_embedded_documents_start_with_code_of_this_interpreter():
    first = list(itertools.islice(embedded_documents(), 20))
    assert {document.source for document in first} == {"code"}
    assert "stdlib/__future__.py" in {document.key for document in first}


def test_embedded_documents_need_a_library(tmp_path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(ValueError, match="standard library"):
        list(embedded_documents())
