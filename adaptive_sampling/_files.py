"""Files that are whole or absent: write to a temporary name, flush, rename."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def atomic_writer(path: Path | str, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; on success it replaces `path`, on any error it is removed."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        text = "b" not in mode
        with open(temporary, mode, encoding="utf-8" if text else None, newline="\n" if text else None) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented JSON, atomically; non-finite numbers are refused."""
    with atomic_writer(path, "w") as file:
        json.dump(value, file, indent=2, allow_nan=False)
        file.write("\n")
