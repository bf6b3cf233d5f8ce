"""The same store byte for byte from Ray tasks, on a local Ray with two workers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from adaptive_sampling.corpus import Source, prepare
import adaptive_sampling.corpus.sources as sources, adaptive_sampling.corpus._work as work
sources.PIECE_BYTES = work.PIECE_BYTES = 3000
given = [Source("rows", sys.argv[1] + "/*.jsonl"), Source("texts", sys.argv[1] + "/*.txt")]
for out, ray in (("here", False), ("ray", True)):
    prepare(given, sys.argv[2] + "/" + out, vocab_size=280, validation_fraction=0.3, num_workers=2 * ray, ray=ray)
"""


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_ray_tasks_write_the_same_store(tmp_path):
    pytest.importorskip("ray")
    folder = tmp_path / "in"
    folder.mkdir()
    rows = [json.dumps({"text": f"row {number} is {number**3} " * 9}) for number in range(60)]
    (folder / "a.jsonl").write_text("\n".join([*rows, "{"]))
    for number in range(6):
        (folder / f"{number}.txt").write_text(f"text {number} with {number**5} words\n\n" * 40)
    # In a process of its own: Ray starts threads and servers that outlive a test.
    command = [sys.executable, "-c", SCRIPT, str(folder), str(tmp_path)]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "RAY_DISABLE_IMPORT_WARNING": "1"}
    environment.pop("RAY_ADDRESS", None)
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
    assert files_of(tmp_path / "here") == files_of(tmp_path / "ray")
