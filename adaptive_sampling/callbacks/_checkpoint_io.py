"""Where Lightning writes a checkpoint: our large state goes into a file of its own beside it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.plugins.io.wrapper import _WrappingCheckpointIO
from lightning.pytorch.strategies import Strategy

from adaptive_sampling._state_files import files_beside, num_bytes, write_beside
from adaptive_sampling.errors import MissingPackageError

LIMIT = "max_bytes_in_checkpoint"
"""Key of a callback's state: its tensors go beside the checkpoint if they take more."""
_OWNER = "AdaptiveSampling"


class StateBesideCheckpoint(_WrappingCheckpointIO):
    """Saves and removes checkpoints as the IO within it does, with the files that belong to them.

    It knows no callback: it looks at what a checkpoint holds. So whoever saves is served, Trainer or ModelCheckpoint,
    also when training has ended or failed. A strategy that writes its state without a CheckpointIO (sharded FSDP,
    DeepSpeed), or a path that is no local one, keeps all state in the checkpoint.

    The file is there before the checkpoint that needs it, and goes after the checkpoint that needed it.
    """

    @classmethod
    def join(cls, strategy: Strategy) -> None:
        """Stand around the innermost IO of `strategy`, once: an asynchronous one calls it from its own thread."""
        outer: _WrappingCheckpointIO | None = None
        io: CheckpointIO | None = strategy.checkpoint_io
        while isinstance(io, _WrappingCheckpointIO):
            if isinstance(io, cls):
                return
            outer, io = io, io.checkpoint_io
        if outer is None:
            strategy.checkpoint_io = cls(io)
        else:
            outer._checkpoint_io = cls(io)

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, *args: Any, **kwargs: Any) -> None:
        """Save, with the tensors of large states beside it."""
        if not _is_local(path):
            super().save_checkpoint(checkpoint, path, *args, **kwargs)
            return
        before = set(files_beside(Path(path)))
        try:
            lighter = _moved_beside(Path(path), checkpoint)
            super().save_checkpoint(lighter, path, *args, **kwargs)
        except BaseException:
            _remove(set(files_beside(Path(path))) - before)
            raise
        # The checkpoint that needed them is gone by now.
        _remove(set(files_beside(Path(path))) - _needed(Path(path), lighter))

    def remove_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """Remove, with what is beside it."""
        super().remove_checkpoint(path, *args, **kwargs)
        if _is_local(path):
            _remove(set(files_beside(Path(path))))


def _is_local(path: Any) -> bool:
    return "://" not in str(path)


def _moved_beside(path: Path, checkpoint: dict[str, Any]) -> dict[str, Any]:
    states = {}
    for key, state in checkpoint.get("callbacks", {}).items():
        if isinstance(state, Mapping) and LIMIT in state and num_bytes(state) > state[LIMIT]:
            try:
                states[key] = write_beside(path, _OWNER, state)
            except MissingPackageError as error:
                warnings.warn(f"the checkpoint holds all state of {key}: {error}", stacklevel=2)
    return {**checkpoint, "callbacks": {**checkpoint["callbacks"], **states}} if states else checkpoint


def _needed(path: Path, checkpoint: Mapping[str, Any]) -> set[Path]:
    states = [state for state in checkpoint.get("callbacks", {}).values() if isinstance(state, Mapping)]
    return {path.with_name(state["beside"]["file"]) for state in states if "beside" in state}


def _remove(paths: set[Path]) -> None:
    for path in paths:
        # One that cannot be removed is waste, and no reason to stop a training.
        with contextlib.suppress(OSError):
            path.unlink()
