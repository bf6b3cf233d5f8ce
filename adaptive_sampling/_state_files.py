"""State too large for a checkpoint: its tensors in a file beside it, its structure and a checksum within it.

The file is named after the checkpoint and its own content, `x.ckpt.<owner>-<checksum>.safetensors`: a new one never
overwrites the one that a checkpoint on disk still refers to.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from adaptive_sampling.errors import MissingPackageError, StateMismatchError

BESIDE = "beside"
"""Key of what a state says about its file: its name, bytes, checksum, and where each of its tensors belongs."""
_NAME = re.compile(r"\.[A-Za-z0-9_]+-[0-9a-f]{32}\.safetensors")


def num_bytes(state: Any) -> int:
    """Bytes of all tensors within `state`."""
    return sum(tensor.nbytes for _, tensor in _tensors(state))


def write_beside(checkpoint: Path, owner: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Write the tensors of `state` to a file beside `checkpoint`; what stays is returned, `state` is left as it is.

    The file is complete under its name, or absent.

    Args:
        checkpoint: path of the checkpoint, which need not exist yet.
        owner: letters and digits: whose state it is, for the name of the file.
        state: dicts, lists, tensors, Python primitives.

    Raises:
        MissingPackageError: if safetensors is not installed.
        OSError: if the file cannot be written.

    Cost:
        O(bytes): they are written once, and read once for the checksum. No copy in memory.
    """
    save_file = _safetensors().save_file
    named, places = {}, {}
    storages = set()
    for place, tensor in _tensors(state):
        if tensor.numel() == 0:
            continue
        name = "/".join(map(str, place))
        while name in named:
            name += "_"
        tensor = tensor.detach().cpu().contiguous()
        # The format wants each tensor to own its memory; what an update hands to several places is written for each.
        storage = tensor.untyped_storage().data_ptr()
        named[name] = tensor.clone() if storage in storages else tensor
        storages.add(storage)
        places[name] = list(place)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    temporary = checkpoint.with_name(f".{checkpoint.name}.{owner}.{os.getpid()}.tmp")
    for left in checkpoint.parent.glob(f".{glob.escape(checkpoint.name)}.{owner}.*.tmp"):
        left.unlink(missing_ok=True)  # by a process that was killed: one alone writes a checkpoint
    try:
        save_file(named, temporary)
        checksum = _checksum(temporary)
        path = checkpoint.with_name(f"{checkpoint.name}.{owner}-{checksum}.safetensors")
        beside = {"file": path.name, "bytes": temporary.stat().st_size, "checksum": checksum, "places": places}
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return {**_without(state, {tuple(place) for place in places.values()}), BESIDE: beside}


def read_beside(checkpoint: Path | str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Counterpart of `write_beside`: `state` with its tensors; as it is, where it has no file.

    Looked for beside the checkpoint, and beside the file that it links to; both may have been renamed alike.

    Raises:
        StateMismatchError: if the file is missing, truncated or another; the message names it and the cure.
        MissingPackageError: if safetensors is not installed.

    Cost:
        O(bytes): they are read once for the checksum, and once more.
    """
    if BESIDE not in state:
        return dict(state)
    beside = state[BESIDE]
    path = _find(Path(checkpoint), beside["file"])
    cure = "Put it back as it was saved, or resume from another checkpoint."
    size = path.stat().st_size
    if size != beside["bytes"]:
        raise StateMismatchError(
            f"`{path}` must have {beside['bytes']} bytes, as `{checkpoint}` says, got {size}. {cure}"
        )
    checksum = _checksum(path)
    if checksum != beside["checksum"]:
        raise StateMismatchError(
            f"`{path}` must have the checksum {beside['checksum']}, as `{checkpoint}` says, got {checksum}: its "
            f"content has changed. {cure}"
        )
    tensors = _safetensors().load_file(path)
    whole: dict[str, Any] = _without(state, set())
    del whole[BESIDE]
    for name, place in beside["places"].items():
        holder = whole
        for part in place[:-1]:
            holder = holder[part]
        holder[place[-1]] = tensors[name]
    return whole


def files_beside(checkpoint: Path) -> Iterator[Path]:
    """Files that `write_beside` has left beside `checkpoint`."""
    if checkpoint.parent.is_dir():
        for path in checkpoint.parent.iterdir():
            if path.name.startswith(checkpoint.name) and _NAME.fullmatch(path.name[len(checkpoint.name) :]):
                yield path


def _find(checkpoint: Path, name: str) -> Path:
    ending = _NAME.search(name)
    assert ending is not None
    folders = (checkpoint.parent, checkpoint.resolve().parent)
    for file in (name, checkpoint.name + ending[0]):
        for folder in folders:
            if (folder / file).is_file():
                return folder / file
    raise StateMismatchError(
        f"`{checkpoint}` needs `{folders[0] / name}`, which holds tables of its state, got no such file. "
        "Move or copy both together, or resume from another checkpoint."
    )


def _tensors(state: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Tensor]]:
    """Tensors within nested dicts and lists, each with its place."""
    if isinstance(state, Tensor):
        yield place, state
    elif isinstance(state, (Mapping, list)):
        for key, value in state.items() if isinstance(state, Mapping) else enumerate(state):
            yield from _tensors(value, (*place, key))


def _without(state: Any, gone: set[tuple[str | int, ...]], place: tuple[str | int, ...] = ()) -> Any:
    """`state` in new dicts and lists, with None at the places `gone`."""
    if isinstance(state, Mapping):
        return {key: _without(value, gone, (*place, key)) for key, value in state.items()}
    if isinstance(state, list):
        return [_without(value, gone, (*place, key)) for key, value in enumerate(state)]
    return None if place in gone else state


def _checksum(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while part := file.read(1 << 24):
            digest.update(part)
    return digest.hexdigest()


def _safetensors() -> ModuleType:
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] != "safetensors":
            raise
        raise MissingPackageError(
            "`safetensors` must be installed for state beside a checkpoint, got no such module. "
            "Install it with: pip install safetensors"
        ) from None
    return safetensors.torch
