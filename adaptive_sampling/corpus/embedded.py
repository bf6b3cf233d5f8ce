"""A corpus that every machine has: the running interpreter's own library, its code and its prose."""

from __future__ import annotations

import ast
import importlib.util
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from adaptive_sampling.corpus.readers import Document

_SKIPPED_FOLDERS = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages"})


def embedded_documents() -> Iterator[Document]:
    """Documents from the standard library, no download: about 12 MB of "code" and 0.7 MB of "prose".

    Code is every .py file outside test and site folders, with its module docstring cut out; prose is the pydoc topics
    and those docstrings. Files that do not decode or parse are skipped.

    Returns:
        Iterator over `Document`: code sorted by path, then prose sorted by key. The same for the same interpreter.

    Raises:
        ValueError: if the interpreter has no library of .py files (as in a frozen program).
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    names = sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if _SKIPPED_FOLDERS.isdisjoint(path.relative_to(root).parts[:-1])
    )
    prose = [Document("prose", f"topic/{name}", text) for name, text in _topics()]
    num_code = 0
    for name in names:
        try:
            text = importlib.util.decode_source((root / name).read_bytes())
            text.encode("utf-8")
            code, docstring = cut_docstring(text)
        except (OSError, SyntaxError, ValueError, RecursionError):  # UnicodeError is a ValueError
            continue
        if docstring:
            prose.append(Document("prose", f"docstring/{name}", docstring))
        if code.strip():
            num_code += 1
            yield Document("code", f"stdlib/{name}", code)
    if not num_code:
        raise ValueError(
            f"the standard library must hold .py files, got none in {str(root)!r}. Use a regular Python, or text files."
        )
    yield from sorted(prose, key=lambda document: document.key)


def cut_docstring(code: str) -> tuple[str, str]:
    """Split Python source into (source without its module docstring, that docstring, "" if there is none).

    Raises:
        SyntaxError: if the source does not parse.
        ValueError: if it cannot be read as source at all, or its docstring is no valid text.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old escapes in library code are no concern here
        body = ast.parse(code).body
    if not body or not isinstance(body[0], ast.Expr) or not isinstance(body[0].value, ast.Constant):
        return code, ""
    node = body[0].value
    if not isinstance(node.value, str):
        return code, ""
    node.value.encode("utf-8")
    # ast counts positions in bytes of UTF-8 and ends lines at "\n" alone; str.splitlines would also end at form feeds.
    lines = code.encode("utf-8").split(b"\n")
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    middle = [] if not (before + after).strip() else [before + after]
    return b"\n".join(lines[:first] + middle + lines[last + 1 :]).decode("utf-8"), node.value


def _topics() -> list[tuple[str, str]]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions leave the topics out
        return []
    return sorted(topics.items())
