"""What the ranks of one node hold once: a memory-mapped file without a name, its lock, and the ids drawn last.

The ranks of a node meet in the file by themselves: all open the same name, which is removed as soon as all have done
so. From then on the file lives as long as a process holds it, so a killed run leaves nothing behind.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.sampling.sum_tree import Allocate

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_ALIGNMENT = 64
_NUM_SCALARS = 24  # of int64, then as many of float64
_SCALAR_BYTES = 2 * 8 * _NUM_SCALARS


class NodeMemory:
    """Zeroed memory of a node, the same for all processes that give the same `token`.

    Args:
        token: random, the same on all ranks.
        array_bytes: bytes of each array that `allocator` will be asked for, in order.
        ring_length: how many ids drawn last are kept for slower ranks.
        largest_id: decides how wide an id is kept.

    Raises:
        ValueError: if another rank asked for another size.
        OSError: if the node has no room for it.
        RuntimeError: where the operating system knows no `flock`.
    """

    def __init__(self, token: int, array_bytes: Sequence[int], *, ring_length: int, largest_id: int) -> None:
        if fcntl is None:
            raise RuntimeError("`shared_memory` needs `flock`, which this system lacks. Leave it out.")
        id_dtype = np.dtype(np.int32 if largest_id < 2**31 else np.int64)
        sizes = [_SCALAR_BYTES, ring_length * id_dtype.itemsize, *array_bytes]
        self.num_bytes = sum(map(_aligned, sizes))
        self.path = _folder() / f"adaptive-sampling-{token:016x}"
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        self._process = os.getpid()
        weakref.finalize(self, os.close, self._file)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            _reserve(self._file, self.num_bytes, self.path)
        except BaseException:
            self.forget_name()
            raise
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._memory = mmap.mmap(self._file, self.num_bytes)
        integers = np.frombuffer(self._memory, np.int64, _NUM_SCALARS)
        self._unfinished = integers[:1]
        self.integers = integers[1:]
        self.floats = np.frombuffer(self._memory, np.float64, _NUM_SCALARS, 8 * _NUM_SCALARS)
        self._ring = np.frombuffer(self._memory, id_dtype, ring_length, _aligned(_SCALAR_BYTES))
        self._arrays_from = sum(map(_aligned, sizes[:2]))

    def forget_name(self) -> None:
        """Remove the file's name; its memory stays as long as a process holds it."""
        self.path.unlink(missing_ok=True)

    def allocator(self) -> Allocate:
        """Gives the arrays from the first one on: the same ones each time it is made, in every process."""
        offset = self._arrays_from

        def allocate(length: int, dtype: Any) -> NDArray[Any]:
            nonlocal offset
            array = np.frombuffer(self._memory, dtype, length, offset)
            offset += _aligned(array.nbytes)
            return array

        return allocate

    def clear_arrays(self) -> None:
        """Make all arrays zero again."""
        np.frombuffer(self._memory, np.uint8, self.num_bytes - self._arrays_from, self._arrays_from)[:] = 0

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep all other ranks of the node out.

        Raises:
            RuntimeError: if a rank was stopped in the middle of a change, or a forked worker draws.
        """
        if os.getpid() != self._process:
            raise RuntimeError("a forked worker must not draw. Use the sampler in the main process of each rank.")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            if self._unfinished[0]:
                raise RuntimeError(
                    "a rank was stopped while it changed the draws that all ranks of this node share. "
                    "Start again from the last checkpoint."
                )
            yield
            self._unfinished[0] = 0
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def begin_change(self) -> None:
        """Say that from here to the end of `lock` the memory is not whole."""
        self._unfinished[0] = 1

    # --- ids drawn last ---------------------------------------------------------------------------------------------

    @property
    def ring_length(self) -> int:
        """How many ids are kept."""
        return len(self._ring)

    def read_ids(self, start: int, end: int) -> NDArray[np.int64]:
        """Ids of stream positions [start, end), int64; they must still be kept."""
        return self._ring[np.arange(start, end) % len(self._ring)].astype(np.int64)

    def write_ids(self, end: int, ids: NDArray[np.int64]) -> None:
        """Keep `ids`, which are those before stream position `end`; the first of too many are left out."""
        kept = ids[-len(self._ring) :]
        self._ring[np.arange(end - len(kept), end) % len(self._ring)] = kept


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _folder() -> Path:
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def _reserve(file: int, num_bytes: int, path: Path) -> None:
    """Give a new file its size, for which there must be room now: later, a missing page would kill the process."""
    size = os.fstat(file).st_size
    if size not in (0, num_bytes):
        raise ValueError(
            f"`shared_memory` needs equal samplers on all ranks, got {num_bytes} bytes here and {size} on another one."
        )
    if size:
        return
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, num_bytes)
        else:
            os.ftruncate(file, num_bytes)
    except OSError as error:
        raise OSError(
            error.errno,
            f"`shared_memory` needs {num_bytes} bytes in {path.parent}, which has no room for them ({error.strerror}). "
            "Make it larger (docker run --shm-size=…), or leave `shared_memory` out.",
        ) from None
