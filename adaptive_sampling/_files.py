"""Files that are whole or absent: write to a temporary name, flush, rename."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def atomic_writer(path: Path | str, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; on success it replaces `path`, on any error it is removed.

    The folder is made if it is missing.

    Raises:
        OSError: naming the folder if no file can be made in it, else `path`.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        text = "b" not in mode
        with naming_folder(path.parent):
            file = open(temporary, mode, encoding="utf-8" if text else None, newline="\n" if text else None)  # noqa: SIM115
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            os.replace(temporary, path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def checked_path(name: str, value: Any) -> Path:
    """`value` as a path, `~` being the home folder; `name` is the caller's argument.

    Raises:
        TypeError: for what is no path, None above all.
    """
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"`{name}` must be a path, got {value!r}. Give a str or a pathlib.Path.")
    return Path(value).expanduser()


def make_parent(path: Path) -> None:
    """Make the folder that `path` is to lie in, with those above it.

    Raises:
        OSError: naming the folder, if it cannot be made or is not to be written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        why = f"cannot make a file in this folder ({os.strerror(errno.EACCES)})"
        raise PermissionError(errno.EACCES, why, str(path.parent))


@contextlib.contextmanager
def naming_folder(folder: Path) -> Iterator[None]:
    """Within, a new file is made in `folder`: an error names the folder, not the file's temporary name."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        why = f"cannot make a file in this folder ({error.strerror})"
        raise OSError(error.errno, why, str(folder)) from error


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented JSON, atomically; non-finite numbers are refused."""
    with atomic_writer(path, "w") as file:
        json.dump(value, file, indent=2, allow_nan=False)
        file.write("\n")
