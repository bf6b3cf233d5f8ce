"""Digests of what a run depends on, so that results of different settings never mix."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule

from adaptive_sampling.ab._seeding import seeded

_PLAIN = (bool, int, float, str, type(None))


def digest(*values: Any) -> str:
    """16 hex digits of a content hash: arrays and tensors by their bytes, objects by their type and attributes."""
    hasher = hashlib.blake2b(digest_size=8)
    for value in values:
        _feed(hasher, value, set())
    return hasher.hexdigest()


def _feed(hasher: Any, value: Any, seen: set[int]) -> None:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        hasher.update(f"tensor{value.dtype}{tuple(value.shape)}".encode())
        # `contiguous()` leaves a single element as it is, whose stride may be 0, and no bytes can be seen through that.
        flat = torch.empty(value.numel(), dtype=value.dtype).copy_(value.flatten())
        hasher.update(flat.view(torch.uint8).numpy())
    elif isinstance(value, np.ndarray) and value.dtype != object:
        hasher.update(f"array{value.dtype}{value.shape}".encode())
        hasher.update(np.ascontiguousarray(value).view(np.uint8).reshape(-1))
    elif isinstance(value, _PLAIN):
        hasher.update(f"{type(value).__name__}{value!r};".encode())
    elif isinstance(value, Mapping):
        hasher.update(f"mapping{len(value)}".encode())
        for key in sorted(value, key=repr):
            _feed(hasher, key, seen)
            _feed(hasher, value[key], seen)
    elif isinstance(value, (list, tuple)):
        hasher.update(f"sequence{len(value)}".encode())
        for element in value:
            _feed(hasher, element, seen)
    elif isinstance(value, functools.partial):
        _feed(hasher, (value.func, value.args, value.keywords), seen)
    elif inspect.isroutine(value) or isinstance(value, type):
        hasher.update(f"{value.__module__}.{value.__qualname__}".encode())
    else:
        # Objects may point back to each other.
        hasher.update(f"{type(value).__module__}.{type(value).__qualname__}".encode())
        if id(value) not in seen:
            seen.add(id(value))
            slots = (name for base in type(value).__mro__ for name in getattr(base, "__slots__", ()))
            state = {name: getattr(value, name) for name in slots if hasattr(value, name)}
            _feed(hasher, {**state, **getattr(value, "__dict__", {})}, seen)


def module_settings(module: LightningModule) -> dict[str, Any]:
    """Class, source text, hyperparameters and plain attributes of a module; its parameters are hashed apart."""
    kind = type(module)
    try:
        source = digest(inspect.getsource(kind))
    except (OSError, TypeError):
        source = None  # defined in a console
    plain = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, _PLAIN) and not name.startswith("_") and name != "training"
    }
    return {
        # Without the file's name: a script that is run as __main__ and imported elsewhere holds one and the same class.
        "class": kind.__qualname__,
        "source": source,
        "hyperparameters": digest(dict(module.hparams)),
        "attributes": plain,
    }


def parameters_digest(module: LightningModule) -> str:
    """Digest of all parameters and buffers."""
    return digest(module.state_dict())


def dataset_settings(dataset: Any) -> dict[str, Any]:
    """Number of items and a digest of the dataset: its own `fingerprint`, else that of 16 of its items."""
    count = len(dataset)
    own = getattr(dataset, "fingerprint", None)
    if callable(own):
        own = own()
    if own is None and count:
        with seeded(0):
            own = digest(*(dataset[i] for i in sorted({k * (count - 1) // 15 for k in range(16)})))
    return {"items": count, "fingerprint": own if isinstance(own, str) else digest(own)}


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Digest of JSON settings, independent of the order of keys."""
    return digest(json.dumps(settings, sort_keys=True))


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs between two settings, one `name: old → new` each."""
    found: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key}: {before!r} → {after!r}")
    return found
