"""The command `adaptive-sampling`: prepare a corpus, look into it, find what is scarce, compare ways to draw windows.

Exit codes: 0 on success; 1 if some runs of a comparison failed and others did not; 2 on bad arguments or bad input,
with one line on stderr that says what, where and the cure, below the traceback where code of the user's raised; 130
when interrupted; 141, as shells count it, when what read the output, as `head`, had enough. `_HOMES` is where a command
is added.
"""

from __future__ import annotations

import argparse
import importlib
import os
import select
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from adaptive_sampling import __version__
from adaptive_sampling.errors import UserCodeError

PROGRAM = "adaptive-sampling"


class _BadArguments(Exception):
    """Arguments that argparse refuses; `main` prints them like all other errors."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _BadArguments(f"{message}. See `{self.prog} --help`.")


_HOMES = {
    "prepare": "adaptive_sampling.corpus.commands",
    "import": "adaptive_sampling.corpus.commands",
    "inspect": "adaptive_sampling._inspect_command",
    "scarcity": "adaptive_sampling._scarcity_command",
    "ab": "adaptive_sampling._ab_command",
    "report": "adaptive_sampling._ab_command",
}
"""Where each command is; its module names what registers it in `COMMANDS`."""


def _subcommands(arguments: Sequence[str]) -> dict[str, Callable[[Any], None]]:
    """Name → what registers it: the command that is called, or all of them for help and errors.

    Loading takes up to seconds, in which Ctrl-C must end the command like later on, and `prepare` needs no torch.
    """
    names = arguments[:1] if arguments and arguments[0] in _HOMES else _HOMES
    return {name: importlib.import_module(_HOMES[name]).COMMANDS[name] for name in names}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program's name; default: those of the process.

    Returns:
        The exit code.
    """
    given = sys.argv[1:] if argv is None else argv
    try:
        parser = _Parser(prog=PROGRAM, description="Prepare text for training windows and look into what was prepared.")
        parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
        subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
        for add in _subcommands(given).values():
            add(subparsers)
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            arguments = parser.parse_args(given)
            arguments.run(arguments)
            sys.stdout.flush()
    except SystemExit as finished:  # --help, --version, and runs that failed
        return finished.code if isinstance(finished.code, int) else 0
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return 130
    except (_BadArguments, ValueError, TypeError, OSError, ImportError) as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            return 141
        if isinstance(error, UserCodeError) and error.__cause__ is not None:
            cause = error.__cause__
            traceback.print_exception(type(cause), cause, _users_part(cause.__traceback__))
        print(f"{PROGRAM}: error: {_one_line(error)}", file=sys.stderr)
        return 2
    return 0


def _reader_is_gone() -> bool:
    """Whether it was standard output that broke, not a pipe to a worker; if so, nothing is written there any more."""
    try:
        output = sys.stdout.fileno()
        watch = select.poll()
    except (OSError, ValueError, AttributeError):  # no file; no poll on Windows
        return False
    watch.register(output, select.POLLOUT)
    if not any(events & select.POLLERR for _, events in watch.poll(0)):
        return False
    # What the buffer still holds would be written, and fail again, when the interpreter ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this package and of the import system that it begins with."""
    ours = (str(Path(__file__).parent), "<frozen importlib", str(importlib.__file__))
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(ours):
        trace = trace.tb_next
    return trace


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"`{error.filename}`: {error.strerror}. Check the path and its permissions."
    return " ".join(str(error).split())


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"{PROGRAM}: warning: {' '.join(str(message).split())}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
