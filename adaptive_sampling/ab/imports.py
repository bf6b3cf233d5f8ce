"""What a configuration names by import path: modules, data and policies of the user's own."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adaptive_sampling.errors import UserCodeError, clause


@dataclass(frozen=True)
class Imported:
    """A function or class by import path, called with fixed arguments; can be sent to other processes.

    Attributes:
        path: "package.module:function" or "package.module.Class".
        arguments: keyword arguments of the call.
        folders: absolute paths that are searched first.
        where: what names it, for messages.
    """

    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    where: str = "`path`"

    def load(self) -> Any:
        """The function or class itself.

        Raises:
            ValueError: if there is no such module or attribute.
            UserCodeError: if importing it raises.
        """
        module_name, colon, name = self.path.partition(":")
        if not colon:
            module_name, _, name = self.path.rpartition(".")
        if not module_name or not name or self.path.startswith("."):
            raise ValueError(
                f"{self.where} must be an import path, got {self.path!r}. "
                "Write 'package.module:function' or 'package.module.Class'."
            )
        for folder in reversed(self.folders):
            if folder not in sys.path:
                sys.path.insert(0, folder)
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
                raise ValueError(
                    f"{self.where} must be importable, got {self.path!r}: there is no module {error.name!r} in "
                    f"{', '.join(self.folders) or 'the Python path'} or among the installed packages. "
                    "Start the command where it lies, or install it."
                ) from None
            raise ValueError(
                f"{self.where} must be importable, got {self.path!r}: it needs {error.name!r}, which is missing. "
                f"Install {error.name!r}."
            ) from error
        except Exception as error:
            raise UserCodeError(
                f"{self.where} must be importable, got {self.path!r}: {type(error).__name__}: {clause(error)}. "
                f"Repair {module_name}."
            ) from error
        for part in name.split("."):
            if not hasattr(found, part):
                names = [known for known in vars(found) if not known.startswith("_")]
                raise ValueError(
                    f"{self.where} must be importable, got {self.path!r}: {module_name!r} has no {part!r}. "
                    f"It has {', '.join(names[:12]) or 'nothing'}."
                )
            found = getattr(found, part)
        if not callable(found):
            raise ValueError(
                f"{self.where} must name a function or a class, got {self.path!r}, which is {found!r}. "
                "Name what makes it."
            )
        return found

    def __call__(self) -> Any:
        """What it makes with `arguments`.

        Raises:
            ValueError: if it does not take these arguments.
            UserCodeError: if it raises.
        """
        made = self.load()
        with naming_user_code(self):
            try:
                return made(**self.arguments)
            except TypeError as error:
                # Arguments that do not fit are the configuration's fault; errors from inside are not.
                if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                    raise _WrongArgumentsError(
                        f"{self.where} must be callable with the arguments given, got {self.path!r} with "
                        f"{dict(self.arguments)!r}: {clause(error)}. Change `arguments`."
                    ) from error
                raise


class _WrongArgumentsError(ValueError):
    """Arguments in a configuration that do not fit what they are for."""


@contextlib.contextmanager
def naming_user_code(source: Imported) -> Iterator[None]:
    """What is raised within came from the user's code behind `source`, which is named.

    Raises:
        UserCodeError: from the user's error, which keeps its traceback.
    """
    try:
        yield
    except (UserCodeError, _WrongArgumentsError):
        raise
    except Exception as error:
        said = f": {clause(error)}" if str(error) else ""
        raise UserCodeError(f"{source.where} ({source.path}) raised {type(error).__name__}{said}.") from error


def search_folders(config: Path) -> tuple[str, ...]:
    """Where a configuration's import paths are looked up first: its own folder and the current one."""
    return tuple(dict.fromkeys([str(config.absolute().parent), str(Path.cwd())]))
