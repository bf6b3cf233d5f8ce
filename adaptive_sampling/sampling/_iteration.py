"""What one `iter(sampler)` yields: this rank's share of the rest of a loader epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adaptive_sampling.sampling.sampler import AdaptiveSampler

_held = 0


@contextmanager
def nothing_handed_out() -> Iterator[None]:
    """Meanwhile all samplers of this process are empty to whoever iterates over them, which has no effect on them.

    For a trainer that starts loaders, and with them workers that draw ahead, before it can be told whose they are.
    """
    global _held
    _held += 1
    try:
        yield
    finally:
        _held -= 1


class RankShare(Iterator[int]):
    """The rest of the current epoch for one rank. Without effect before its first `next`, which silences older ones."""

    def __init__(self, sampler: AdaptiveSampler) -> None:
        self._sampler = sampler
        self._generation: int | None = None
        self._next = 0  # stream position of the next draw of all ranks
        self._ready: Iterator[int] = iter(())  # this rank's share of what is drawn from there on

    def __next__(self) -> int:
        if _held:
            raise StopIteration
        sampler = self._sampler
        if self._generation == sampler._newest:
            value = next(self._ready, None)
            if value is not None:
                return self._hand_out(value)
        world = sampler._bound_world()
        if self._generation is None:
            sampler._newest += 1
            self._generation = sampler._newest
            if sampler._epoch_is_over():
                sampler._next_epoch()
            self._next = sampler._stream.position
        if self._generation != sampler._newest or self._next + world > sampler._epoch_end():
            raise StopIteration
        sampler._fill(self._next + world)
        rest = min(sampler._stream.end, sampler._epoch_end()) - self._next
        own = sampler._stream.ahead(self._next + sampler.rank, world)[: rest // world]
        self._ready = iter(own.tolist())
        return self._hand_out(next(self._ready))

    def _hand_out(self, value: int) -> int:
        self._next += self._sampler._world or 1
        if not self._sampler._managed:
            self._sampler._stream.advance(self._next)
        return value
