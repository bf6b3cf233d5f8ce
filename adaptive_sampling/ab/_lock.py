"""Who writes where: one process per run, one comparison per folder. The system drops a lock with its process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from adaptive_sampling._files import naming_folder


class FolderInUseError(OSError):
    """Another process writes to the folder."""


@contextlib.contextmanager
def folder_lock(folder: Path | str, *, shared: bool = False, wait: bool = False) -> Iterator[None]:
    """Hold `folder` (made if missing) for this process; where the system knows no `flock`, nothing is held.

    Args:
        folder: what to hold.
        shared: hold it beside others that share it, against one that wants it alone.
        wait: until whoever holds it lets go, instead of raising.

    Raises:
        FolderInUseError: naming the process that holds it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / ".lock", folder, shared=shared, wait=wait):
        yield


@contextlib.contextmanager
def file_lock(path: Path, held: Path, *, shared: bool = False, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path`, which stands for `held` in messages.

    Raises:
        FolderInUseError: naming the process that holds it.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with naming_folder(path.parent):
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115
    with file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise FolderInUseError(
                f"{held} is in use by process {holder}. Wait until it ends, or choose another folder."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
