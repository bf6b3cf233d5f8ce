"""kill -9 of one of two ranks; from the last checkpoint both go on as if nothing had happened."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from ranks import PACKAGE_ROOT, launch

pytestmark = pytest.mark.filterwarnings("ignore:no learned weight can count")

SCRIPT = """
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, {here!r})
import lightning.pytorch as pl
import callback_rank

class Slow(callback_rank.Saving):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        if {wait} and trainer.global_step == 9:
            (self.folder / f"waiting{{trainer.global_rank}}").touch()
            time.sleep(120)

folder, path = Path({folder!r}), {path!r}
result = callback_rank.run(2, Slow(folder, (7,)) if path is None else pl.Callback(), ckpt_path=path)
(folder / f"{name}{{os.environ['RANK']}}.json").write_text(json.dumps(result))
import torch
torch.distributed.destroy_process_group()
"""


def script(tmp_path, name, wait=False, path=None):
    file = tmp_path / f"{name}.py"
    here = os.path.dirname(os.path.abspath(__file__))
    file.write_text(SCRIPT.format(here=here, folder=str(tmp_path), path=path, wait=wait, name=name))
    return file


def test_a_run_goes_on_after_one_rank_was_killed(tmp_path):
    launch([script(tmp_path, "whole")])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = script(tmp_path, "killed", wait=True)
    paths = os.pathsep.join([PACKAGE_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    common = {**os.environ, "PYTHONPATH": paths, "WORLD_SIZE": "2", "NODE_RANK": "0", "OMP_NUM_THREADS": "1"}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, file],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]
    try:
        until = time.monotonic() + 60
        while not all((tmp_path / f"waiting{rank}").exists() for rank in range(2)):
            assert time.monotonic() < until
            time.sleep(0.05)
        processes[1].send_signal(signal.SIGKILL)
        assert processes[1].wait(20) == -signal.SIGKILL
    finally:
        for process in processes:
            process.kill()
            process.wait()
    launch([script(tmp_path, "resumed", path=str(tmp_path / "step-7.ckpt"))])
    for rank in range(2):
        whole, resumed = (json.loads((tmp_path / f"{name}{rank}.json").read_text()) for name in ("whole", "resumed"))
        assert resumed["error"] is None
        assert resumed["ids"] == whole["ids"][7:]
        assert resumed["weights"] == whole["weights"]
