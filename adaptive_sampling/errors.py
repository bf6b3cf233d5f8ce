"""Errors that callers may want to catch by name."""

__all__ = ["MissingPackageError", "StateMismatchError", "StoreError"]


class MissingPackageError(ImportError):
    """A package that a function needs is not installed; the message says what to install."""


class StateMismatchError(ValueError):
    """A saved state does not fit the object it is loaded into; the message shows both sides and the cure."""


class StoreError(ValueError):
    """A token store on disk is incomplete, damaged, or of a version this package does not read."""
