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
        self._paths = [str(path) for path in sorted(folder.glob("*")) if path.suffix in (".bin", ".json")]
        self._stamps = [_stamp(path) for path in self._paths]
        self._turn = 0

    def check(self) -> None:
        """Compare with what is there.

        Raises:
            StoreError: if a file was written to or exchanged. One that was deleted can still be read and goes on.
        """
        for number in range(self._turn, self._turn + min(len(self._paths), _FILES_PER_CHECK)):
            path, stamp = self._paths[number % len(self._paths)], self._stamps[number % len(self._paths)]
            found = _stamp(path)
            if found != stamp and found is not None and stamp is not None:
                raise StoreError(
                    f"`store` must stay as it was when the dataset was made, got {path!r} of {found[0]} bytes for "
                    f"{stamp[0]}, changed since. Open the store again and make the dataset anew."
                )
        if len(self._paths) > _FILES_PER_CHECK:
            self._turn = (self._turn + _FILES_PER_CHECK) % len(self._paths)


def _stamp(path: str) -> Stamp | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino
