"""Errors that callers may want to catch by name."""

__all__ = ["MissingPackageError", "StateMismatchError", "StoreError", "UserCodeError", "clause"]


class MissingPackageError(ImportError):
    """A package that a function needs is not installed; the message says what to install."""


class StateMismatchError(ValueError):
    """A saved state does not fit the object it is loaded into; the message shows both sides and the cure."""


class StoreError(ValueError):
    """A token store on disk is incomplete, damaged, or of a version this package does not read."""


class UserCodeError(ValueError):
    """Code that a configuration names raised; `__cause__` is what it raised, with its traceback."""


def clause(error: object) -> str:
    """A message as part of a longer sentence: one line, without the full stop at its end.

    Example:
        >>> clause("End it with `return loss`.")
        'End it with `return loss`'
    """
    return " ".join(str(error).split()).removesuffix(".")
