"""Run a Python script as several ranks on this machine, as a launcher would."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import adaptive_sampling

# Ranks import the package that the tests import, be it installed or not.
PACKAGE_ROOT = str(Path(adaptive_sampling.__file__).parents[1])


def launch(command, *, ranks=2, check=True, timeout=600):
    """Run `python *command` once per rank, with the environment that gloo and Lightning read; the outputs, by rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([PACKAGE_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "NODE_RANK": "0",
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        outputs = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    if check:
        assert [process.returncode for process in processes] == [0] * ranks, "\n".join(outputs)
    return outputs
