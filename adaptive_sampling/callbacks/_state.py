"""Which saved states of the callback can be gone on from."""

from __future__ import annotations

from typing import Any

from adaptive_sampling._state_files import BESIDE
from adaptive_sampling.errors import StateMismatchError

VERSION = 2


def check(state: dict[str, Any]) -> None:
    """Refuse the state of another version, or one without its tables.

    Raises:
        StateMismatchError: with both versions, or the name of the file.
    """
    if state.get("version") != VERSION:
        raise StateMismatchError(
            f"the saved state has version {state.get('version')!r}, this package reads {VERSION}. "
            "Resume with the package version that saved it."
        )
    if BESIDE in state:
        raise StateMismatchError(
            f"the saved state has its tables in `{state[BESIDE]['file']}`, got none. "
            "Let Trainer.fit(ckpt_path=…) read both."
        )
