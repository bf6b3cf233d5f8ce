"""A comparison that is broken off in its middle ends as if it never had been."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from kill_me import STEPS, Slow, compare
from tiny_training import Bigram

from adaptive_sampling.ab import DiskFullError, FolderInUseError
from adaptive_sampling.ab.checkpoints import FILE_NAME, generators, set_generators
from adaptive_sampling.ab.order import EpochShuffle

pytestmark = [
    pytest.mark.filterwarnings("ignore:no learned weight can count"),
    # Lightning says so of every checkpoint that is loaded.
    pytest.mark.filterwarnings("ignore:.*restoring states from the checkpoint.*"),
]
SCRIPT = Path(__file__).with_name("kill_me.py")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("unbroken")
    compare(out, progress=lambda line: None)
    assert not list(out.glob(f"*/{FILE_NAME}"))
    return (out / "results.json").read_bytes()


def broken_off(out: Path, when: Callable[[], bool], how: signal.Signals, jobs: int = 1) -> None:
    """Start the comparison in a process of its own and send it a signal once something has happened."""
    # Several processes at once take longer to hear of it, and longer still on a busy machine.
    seconds_per_step = 0.04 if jobs == 1 else 0.25
    command = [sys.executable, str(SCRIPT), str(out), str(seconds_per_step), str(jobs)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as process:
        deadline = time.monotonic() + 240
        while not when():
            assert process.poll() is None, process.stderr.read().decode()[-2000:] if process.stderr else ""
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(how)
        process.wait(120)


def finished_arms(out: Path) -> list[str]:
    states = {path.parent.name: json.loads(path.read_text())["status"] for path in out.glob("*/run.json")}
    return sorted(name for name, status in states.items() if status == "finished")


def test_kill_in_the_middle_of_the_second_arm_changes_nothing(tmp_path: Path, unbroken: bytes) -> None:
    folder = tmp_path / "adaptive-seed0"
    broken_off(tmp_path, lambda: (folder / FILE_NAME).exists(), signal.SIGKILL)
    assert finished_arms(tmp_path) == ["uniform-seed0"]
    saved = torch.load(folder / FILE_NAME, weights_only=True)
    before = saved["callbacks"]["HeldOutEvaluation"]["timing"]["train_seconds"]
    lines: list[str] = []
    compare(tmp_path, progress=lines.append)
    assert "1 of 3 runs" in lines[0]
    assert (tmp_path / "results.json").read_bytes() == unbroken
    times = json.loads((tmp_path / "timing.json").read_text())["runs"]
    # The seconds before the kill count too.
    assert times["adaptive-seed0"]["train_seconds"] > before > 0


@pytest.mark.soak
def test_kill_in_the_middle_of_the_shuffle_changes_nothing(tmp_path: Path, unbroken: bytes) -> None:
    broken_off(tmp_path, lambda: (tmp_path / "uniform-seed0" / FILE_NAME).exists(), signal.SIGKILL)
    compare(tmp_path, progress=lambda line: None)
    assert (tmp_path / "results.json").read_bytes() == unbroken


def test_interrupt_saves_the_step_that_was_reached(
    tmp_path: Path, unbroken: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter(range(1000))

    def interrupted(module: Slow, batch: Any, batch_idx: int) -> torch.Tensor:
        if next(steps) == STEPS + 16:
            os.kill(os.getpid(), signal.SIGINT)
        return Bigram.training_step(module, batch, batch_idx)

    monkeypatch.setattr(Slow, "training_step", interrupted)
    before = signal.getsignal(signal.SIGINT)  # ignored, where a shell has put the tests into the background
    with pytest.raises(KeyboardInterrupt):
        compare(tmp_path, progress=lambda line: None)
    assert signal.getsignal(signal.SIGINT) is before
    # Checkpoints come every 3 steps; this one was saved for the interrupt, at the end of its step.
    assert torch.load(tmp_path / "adaptive-seed0" / FILE_NAME, weights_only=True)["global_step"] == 17
    monkeypatch.undo()
    compare(tmp_path, progress=lambda line: None)
    assert (tmp_path / "results.json").read_bytes() == unbroken


@pytest.mark.soak
def test_kill_of_the_parent_ends_its_processes_and_changes_nothing(tmp_path: Path, unbroken: bytes) -> None:
    broken_off(tmp_path, lambda: (tmp_path / "adaptive-seed0" / FILE_NAME).exists(), signal.SIGKILL, jobs=2)
    deadline = time.monotonic() + 60
    while True:
        try:
            compare(tmp_path, progress=lambda line: None)
            break
        except FolderInUseError:  # until the orphans have noticed
            assert time.monotonic() < deadline
            time.sleep(0.2)
    assert (tmp_path / "results.json").read_bytes() == unbroken


def test_damaged_checkpoint_starts_the_run_anew(tmp_path: Path, unbroken: bytes) -> None:
    compare(tmp_path, progress=lambda line: None)
    folder = tmp_path / "adaptive-seed0"
    raw = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**raw, "status": "running"}))
    (folder / FILE_NAME).write_bytes(b"half a checkp")
    with pytest.warns(UserWarning, match="adaptive-seed0 starts anew"):
        compare(tmp_path, progress=lambda line: None)
    assert (tmp_path / "results.json").read_bytes() == unbroken


def test_checkpoint_of_another_version_starts_the_run_anew(
    tmp_path: Path, unbroken: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter(range(1000))

    def interrupted(module: Slow, batch: Any, batch_idx: int) -> torch.Tensor:
        if next(steps) == STEPS + 16:
            raise KeyboardInterrupt
        return Bigram.training_step(module, batch, batch_idx)

    monkeypatch.setattr(Slow, "training_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compare(tmp_path, progress=lambda line: None)
    monkeypatch.undo()
    path = tmp_path / "adaptive-seed0" / FILE_NAME
    saved = torch.load(path, weights_only=True)
    (key,) = [key for key in saved["callbacks"] if key.startswith("AdaptiveSampling")]
    saved["callbacks"][key]["version"] = 0
    torch.save(saved, path)
    with pytest.warns(UserWarning, match="version 0.*adaptive-seed0 starts anew"):
        compare(tmp_path, progress=lambda line: None)
    assert (tmp_path / "results.json").read_bytes() == unbroken


def test_full_disk_is_said_in_words_and_keeps_what_has_ended(
    tmp_path: Path, unbroken: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def full(descriptor: int) -> None:
        if "adaptive-seed0" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFullError, match=r"is full, so adaptive-seed0 stopped\. Runs that had ended are kept"):
        compare(tmp_path, progress=lambda line: None)
    assert finished_arms(tmp_path) == ["uniform-seed0"]
    monkeypatch.undo()
    compare(tmp_path, progress=lambda line: None)
    assert (tmp_path / "results.json").read_bytes() == unbroken


def test_a_checkpoint_that_finds_no_room_does_not_stop_the_training(
    tmp_path: Path, unbroken: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lightning.pytorch.Trainer.save_checkpoint", full)
    with pytest.warns(UserWarning, match="no checkpoint of [a-z]+-seed0 after step 3: the disk is full"):
        compare(tmp_path, progress=lambda line: None)
    assert (tmp_path / "results.json").read_bytes() == unbroken


def test_generators_go_back_to_where_they_were() -> None:
    import random

    import numpy as np

    before = generators()
    drawn = (torch.rand(3).tolist(), random.random(), np.random.rand(3).tolist())  # noqa: NPY002
    set_generators(before)
    assert drawn == (torch.rand(3).tolist(), random.random(), np.random.rand(3).tolist())  # noqa: NPY002
    set_generators(before)


def test_epoch_shuffle_is_a_shuffle_per_epoch_and_goes_on_where_it_was() -> None:
    sampler = EpochShuffle(range(10), seed=3)
    first = list(sampler)
    assert sorted(first) == list(range(10))
    assert list(EpochShuffle(range(10), seed=3)) == first
    assert list(EpochShuffle(range(10), seed=4)) != first
    sampler.consume(4)
    other = EpochShuffle(range(10), seed=3)
    other.load_state_dict(sampler.state_dict())
    assert list(other) == first[4:]
    assert len(other) == 10
    other.finish_epoch()
    assert sorted(other) == list(range(10))
    assert list(other) != first
    assert isinstance(sampler, torch.utils.data.RandomSampler)


@pytest.mark.soak
def test_interrupt_of_the_parent_lets_its_processes_save_their_steps(tmp_path: Path, unbroken: bytes) -> None:
    folder = tmp_path / "adaptive-seed0"
    broken_off(tmp_path, lambda: (folder / FILE_NAME).exists(), signal.SIGINT, jobs=2)
    assert torch.load(folder / FILE_NAME, weights_only=True)["global_step"] < STEPS
    assert "adaptive-seed0" not in finished_arms(tmp_path)
    compare(tmp_path, progress=lambda line: None)
    assert (tmp_path / "results.json").read_bytes() == unbroken
