"""One process per output folder. The system drops the lock with the process, so none is ever left behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


class FolderInUseError(OSError):
    """Another process writes to the folder."""


@contextlib.contextmanager
def folder_lock(folder: Path | str) -> Iterator[None]:
    """Hold `folder` (made if missing) for this process; where the system knows no `flock`, nothing is held.

    Raises:
        FolderInUseError: naming the process that holds it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(folder / ".lock", "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise FolderInUseError(
                f"{folder} is in use by process {holder}. Wait until it ends, or choose another folder."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
