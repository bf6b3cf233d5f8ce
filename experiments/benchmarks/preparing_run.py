"""One measured run in a process of its own: `python -m experiments.benchmarks.preparing_run WHAT FOLDER TOKENIZER`.

Prints one line of JSON: seconds, and the peak of memory of this process and its workers in bytes.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path


def bare(folder: Path, tokenizer: Path) -> float:
    """`encode_batch` of the texts as they lie in memory, a thousand at a time, on all processors."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(tokenizer))
    seconds = 0.0
    for path in sorted(folder.iterdir()):
        texts = [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
        for first in range(0, len(texts), 1000):
            begun = time.perf_counter()
            encoder.encode_batch(texts[first : first + 1000])
            seconds += time.perf_counter() - begun
    return seconds


def whole(folder: Path, tokenizer: Path, workers: int) -> float:
    """`prepare`, from files to two stores and a manifest."""
    from adaptive_sampling.corpus import Source, prepare

    with tempfile.TemporaryDirectory(dir=folder.parent) as out:
        begun = time.perf_counter()
        source = Source("text", f"{folder}/*.jsonl")
        prepare([source], Path(out) / "out", tokenizer=tokenizer, num_workers=workers)
        return time.perf_counter() - begun


def main() -> None:
    """Run what the command line says."""
    what, folder, tokenizer = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    seconds = bare(folder, tokenizer) if what == "bare" else whole(folder, tokenizer, workers)
    # The largest worker, as often as there are workers: no less than what they took together.
    unit = 1 if sys.platform == "darwin" else 1024
    own, worker = (resource.getrusage(who).ru_maxrss * unit for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({"seconds": seconds, "peak_bytes": own + worker * workers}))


if __name__ == "__main__":
    main()
