"""Checks that all parts of a configuration share: mappings, known keys, import paths."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from adaptive_sampling.ab.imports import Imported

IMPORT_KEYS = {"path", "arguments"}


def check_mapping(value: Any, where: str, what: str) -> None:
    """Refuse what is no mapping with text as keys.

    Raises:
        ValueError: naming `where` and `what` is expected.
    """
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{where} must be a mapping ({what}), got {type(value).__name__}. Write `key: value` lines.")


def check_keys(given: Mapping[str, Any], known: set[str], where: str) -> None:
    """Refuse keys that are not known.

    Raises:
        ValueError: naming the key and the nearest known one.
    """
    for key in given:
        if key not in known:
            cure = did_you_mean(key, known, f"Known keys: {', '.join(sorted(known))}.")
            raise ValueError(f"{where} must hold known keys, got `{key}`. {cure}")


def did_you_mean(key: str, known: set[str], otherwise: str) -> str:
    """The known key that `key` is nearest to, as a question; `otherwise` where none is near."""
    near = difflib.get_close_matches(key, sorted(known), 1)
    return f"Did you mean `{near[0]}`?" if near else otherwise


def imported(given: Any, key: str, where: str, folders: tuple[str, ...]) -> Imported:
    """What a file names by import path, as text or as `path` and `arguments`; `key` is how messages call it.

    Raises:
        ValueError: if it is neither.
    """
    if isinstance(given, str):
        return Imported(given, {}, folders, key)
    check_mapping(given, f"{key} in {where}", "an import path, or `path` and `arguments`")
    check_keys(given, IMPORT_KEYS, f"{key} in {where}")
    arguments = given.get("arguments") or {}
    check_mapping(arguments, f"`arguments` of {key} in {where}", "keyword arguments")
    if not isinstance(given.get("path"), str):
        raise ValueError(f"`path` of {key} must be an import path in {where}, got {given.get('path')!r}.")
    return Imported(given["path"], arguments, folders, key)
