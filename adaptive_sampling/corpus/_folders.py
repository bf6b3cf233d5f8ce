"""Folders that are whole or absent, and a lock that lets one process write a folder at a time."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from adaptive_sampling._files import naming_folder
from adaptive_sampling.errors import StoreError


def refuse_occupied(path: Path, name: str) -> None:
    """Raise unless `path` is absent or an empty folder; `name` is the caller's argument.

    Raises:
        StoreError: naming the path and the cure.
    """
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.is_file():
        raise StoreError(f"`{name}` must be a new or empty folder, got {str(path)!r}, a file. Choose another path.")
    if path.exists() or path.is_symlink():
        raise StoreError(
            f"`{name}` must be a new or empty folder, got {str(path)!r}, which is not empty. "
            "Choose another path, or remove what is there first."
        )


@contextlib.contextmanager
def new_parents(path: Path) -> Iterator[None]:
    """Make the parents of `path`; on any error those that were made here and are empty go again."""
    made = []
    parent = path.parent
    while not parent.exists():
        made.append(parent)
        parent = parent.parent
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


@contextlib.contextmanager
def atomic_folder(path: Path, name: str) -> Iterator[Path]:
    """A temporary folder beside `path`; on success it becomes `path`, on any error it is removed.

    Raises:
        StoreError: if `path` is occupied, before or after the work.
    """
    refuse_occupied(path, name)
    with new_parents(path):
        # The inner folder gets the permissions of the umask; mkdtemp alone would make the result private to its user.
        with naming_folder(path.parent):
            outer = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        try:
            inner = outer / "new"
            inner.mkdir()
            yield inner
            refuse_occupied(path, name)
            if path.is_dir():
                path.rmdir()
            os.rename(inner, path)
        finally:
            shutil.rmtree(outer, ignore_errors=True)


def _process_lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _holder(lock: Path) -> tuple[int, str] | None:
    """(process id, host) written in `lock`; None while it holds neither, as between its making and its writing."""
    try:
        pid, host = lock.read_text(encoding="utf-8").split()
        return int(pid), host
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def folder_lock(path: Path) -> Iterator[None]:
    """Hold the lock file of the folder `path`; that of a process of this host which no longer lives is taken over.

    Raises:
        StoreError: if another process holds it.
    """
    lock = path.with_name(f".{path.name}.lock")
    me = (os.getpid(), socket.gethostname() or "localhost")
    with new_parents(path):
        for attempt in range(2):
            try:
                with naming_folder(path.parent):
                    handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                break
            except FileExistsError:
                holder = _holder(lock)
                stale = holder is not None and holder[1] == me[1] and not _process_lives(holder[0])
                if attempt or not stale:
                    who = "another process" if holder is None else f"process {holder[0]} on {holder[1]}"
                    raise StoreError(
                        f"`out` must be written by one process at a time, got {str(path)!r}, which {who} is writing. "
                        f"Wait for it; if it no longer runs, remove {str(lock)!r}."
                    ) from None
                with contextlib.suppress(FileNotFoundError):
                    lock.unlink()
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(f"{me[0]} {me[1]}\n")
            yield
        finally:
            lock.unlink(missing_ok=True)
