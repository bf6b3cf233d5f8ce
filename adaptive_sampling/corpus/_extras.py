"""Optional packages, imported where they are used, with an error that names the extra to install."""

from __future__ import annotations

import importlib
from typing import Any


class MissingExtraError(ImportError):
    """An optional package is not installed; the message says what to install."""


def require(module: str, purpose: str, *, extra: str = "corpus") -> Any:
    """Import `module`, one of those that the extra `extra` brings.

    Raises:
        MissingExtraError: if its package is not installed.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] != package:
            raise
        raise MissingExtraError(
            f"`{package}` must be installed {purpose}, got no such module. "
            f"Install it with: pip install {package}, or all of its kind: "
            f"pip install 'lightning-adaptive-sampling[{extra}]'"
        ) from None
