"""Global random state, as user modules need it, given back as it was."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from lightning.pytorch import seed_everything
from lightning.pytorch.utilities.seed import isolate_rng

_VARIABLES = ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")


@contextlib.contextmanager
def untouched_randomness() -> Iterator[None]:
    """Whatever is drawn inside leaves Python's, NumPy's and torch's generators as they were, errors included."""
    error: BaseException | None = None
    with isolate_rng():
        try:
            yield
        except BaseException as caught:  # isolate_rng restores nothing when an exception passes through it
            error = caught
    if error is not None:
        raise error


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """`seed_everything(seed)` for the block; afterwards all is as before."""
    before = {name: os.environ.get(name) for name in _VARIABLES}
    with untouched_randomness():
        seed_everything(seed, workers=True, verbose=False)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
