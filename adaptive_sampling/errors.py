"""Errors that callers may want to catch by name."""

__all__ = ["StateMismatchError", "StoreError"]


class StateMismatchError(ValueError):
    """A saved state does not fit the object it is loaded into; the message shows both sides and the cure."""


class StoreError(ValueError):
    """A token store on disk is incomplete, damaged, or of a version this package does not read."""
