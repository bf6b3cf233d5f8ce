"""Text to a token store, everything included, against the bare tokenizer and datatrove's pipeline on the same text."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_sampling.corpus import embedded_documents, train_tokenizer
from experiments.benchmarks._environment import PeerMissingError, peer_python
from experiments.benchmarks._row import Row

TEXT_BYTES = 50_000_000
LARGE_BYTES = 1_000_000_000
DOCUMENT_BYTES = 8_000
FILES = 8
ROUNDS = 2
VOCAB_SIZE = 8192
DATATROVE = ("datatrove[io]==0.10.1", "tokenizers==0.23.3", "orjson")


@functools.cache
def _prose() -> list[str]:
    return [document.text for document in embedded_documents() if document.source == "prose"]


def write_text(folder: Path, size: int, seed: int = 0) -> None:
    """Some `size` bytes of documents of sentences, as JSONL: words and their frequencies are those of real prose."""
    rng = np.random.default_rng(seed)
    words = np.array(" ".join(_prose()).split(), dtype=object)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        written = 0
        with (folder / f"{number:02}.jsonl").open("w", encoding="utf-8") as file:
            while written < size / FILES:
                # A document of one length has words of its own order; a block of documents is drawn at once.
                picks = words[rng.integers(0, len(words), (64, DOCUMENT_BYTES // 7))]
                for row in picks:
                    text = "\n\n".join(" ".join(row[first : first + 60]) for first in range(0, len(row), 60))
                    line = json.dumps({"text": text}, ensure_ascii=False) + "\n"
                    file.write(line)
                    written += len(line)
                    if written >= size / FILES:
                        break


def measure(what: str, folder: Path, tokenizer: Path) -> dict[str, float]:
    """Seconds, and peak bytes of memory, of "bare" or "prepare" in a process of its own."""
    command = [sys.executable, "-m", "experiments.benchmarks.preparing_run", what, str(folder), str(tokenizer)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _datatrove(folder: Path, tokenizer: Path) -> dict[str, float] | str:
    try:
        python = peer_python(DATATROVE)
    except PeerMissingError as error:
        return str(error)
    script = Path(__file__).with_name("datatrove_run.py")
    command = [str(python), str(script), str(folder), str(tokenizer)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1][:100]}"
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def rows(*, large: bool = False) -> Iterator[Row]:
    """Best of the rounds, which alternate; `large`: 1 GB of text, and the memory for 2 GB."""
    size = LARGE_BYTES if large else TEXT_BYTES
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_FOLDER")) as name:
        root = Path(name)
        tokenizer = root / "tokenizer.json"
        train_tokenizer(_prose(), VOCAB_SIZE).save(str(tokenizer))
        write_text(root / "text", size)
        bytes_of_text = sum(path.stat().st_size for path in (root / "text").iterdir())
        found: dict[str, list[dict[str, Any]]] = {"prepare": [], "bare": []}
        for _ in range(1 if large else ROUNDS):
            for what, figures in found.items():
                figures.append(measure(what, root / "text", tokenizer))
        ours, bare = (min(figures["seconds"] for figures in found[what]) for what in ("prepare", "bare"))
        label = f"{bytes_of_text / 1e6:.0f} MB of text to a store, all included"
        speed = f"{bytes_of_text / ours / 1e6:.2f} MB/s"
        yield Row(label, speed, f"{bytes_of_text / bare / 1e6:.2f} MB/s (bare encode_batch)", ours / bare)
        peer = _datatrove(root / "text", tokenizer)
        if isinstance(peer, str):
            yield Row(label, speed, f"datatrove: {peer}", None)
        else:
            theirs = f"{bytes_of_text / peer['seconds'] / 1e6:.2f} MB/s (datatrove, read and tokenize alone)"
            yield Row(label, speed, theirs, ours / peer["seconds"])
        peak = max(figures["peak_bytes"] for figures in found["prepare"])
        write_text(root / "more", size, seed=1)
        for path in (root / "more").iterdir():
            path.rename(root / "text" / f"more-{path.name}")
        twice = measure("prepare", root / "text", tokenizer)["peak_bytes"]
        label = f"peak memory of all processes, {2 * bytes_of_text / 1e6:.0f} MB of text"
        yield Row(label, f"{twice / 1e6:.0f} MB", f"{peak / 1e6:.0f} MB (half the text)", twice / peak)
