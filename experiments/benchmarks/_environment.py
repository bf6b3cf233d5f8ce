"""An environment of its own for a peer that does not load beside our version of torch."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

INSTALL_LIMIT = 1800  # seconds


class PeerMissingError(Exception):
    """The peer cannot be had on this machine; the message says why, in one line."""


def cache_folder() -> Path:
    """Where environments are kept between runs: below `$XDG_CACHE_HOME`, by default `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lightning-adaptive-sampling"


def peer_python(requirements: tuple[str, ...]) -> Path:
    """The interpreter of an environment with exactly these `requirements`, installed at the first call.

    Raises:
        PeerMissingError: if pip cannot install them.
    """
    folder = cache_folder() / "-".join(requirement.replace("==", "-") for requirement in requirements)
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if stamp.exists():
        return python
    print(f"Installing {', '.join(requirements)} into {folder} (up to 6 GB) …", file=sys.stderr, flush=True)
    try:
        venv.create(folder, with_pip=False, clear=True)
        # Our own pip installs into it: bringing up another one takes longer than everything else that is small.
        command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", *requirements]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise PeerMissingError(f"not installed: {error}") from error
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise PeerMissingError(f"not installed: {errors[-1] if errors else f'pip ended with {done.returncode}'}")
    stamp.touch()
    return python
