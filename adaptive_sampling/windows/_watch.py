"""Whether the files of a store are still those that a dataset was made from."""

from __future__ import annotations

import os
from pathlib import Path

from adaptive_sampling.errors import StoreError

Stamp = tuple[int, int, int]
_FILES_PER_CHECK = 4


class StoreWatch:
    """Sizes, times and inodes of the files that hold tokens, taken when a dataset is made.

    Cost: a `stat`, about a microsecond, for each of at most four files; where there are more, they take turns.
    """

    def __init__(self, folder: Path) -> None:
        paths = [str(path) for path in sorted(folder.glob("*")) if path.suffix in (".bin", ".json")]
        self._files = [(path, _stamp(path)) for path in paths]
        self._turn = 0

    def check(self) -> None:
        """Compare with what is there.

        Raises:
            StoreError: if a file was written to or exchanged. One that was deleted can still be read and goes on.
        """
        files = self._files
        if len(files) > _FILES_PER_CHECK:
            files = (files + files)[self._turn : self._turn + _FILES_PER_CHECK]
            self._turn = (self._turn + _FILES_PER_CHECK) % len(self._files)
        for path, stamp in files:
            found = _stamp(path)
            if found != stamp and found is not None and stamp is not None:
                raise StoreError(
                    f"`store` must stay as it was when the dataset was made, got {path!r} of {found[0]} bytes for "
                    f"{stamp[0]}, changed since. Open the store again and make the dataset anew."
                )


def _stamp(path: str) -> Stamp | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino
