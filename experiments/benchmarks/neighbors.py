"""Search over all windows of the embedded corpus, against scikit-learn and hnswlib; hashed features per second.

Ours runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import adaptive_sampling as ads
from adaptive_sampling.corpus import embedded_documents, prepare
from experiments.benchmarks import _environment
from experiments.benchmarks._row import Row, seconds_text

NUM_WINDOWS = 10**6
PEER_WINDOWS = 10**5
PEER_QUERIES = 1000
SEQ_LEN = 128
NUM_NEIGHBORS = 20
PEERS = ("scikit-learn", "hnswlib")


def rows(folder: Path | None = None) -> Iterator[Row]:
    """Features first, then ours at both sizes, then the peers at the smaller one on the same features."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        store = ads.TokenStore.open(folder or _prepared(place))
        small, features_row = _features(store, PEER_WINDOWS, place)
        yield features_row
        large, features_row = _features(store, NUM_WINDOWS, place)
        yield features_row
        ours = {path: _ours(path) for path in (small, large)}
        for found in ours.values():
            yield Row(
                f"{NUM_NEIGHBORS} neighbours of {found['rows']:,} windows × {found['dim']}, features excluded",
                f"{seconds_text(found['seconds'])}, {found['gigabytes']:.2f} GB, recall {found['recall']:.3f} "
                f"({found['index']}, {found['effort']})",
                "–",
                None,
            )
        yield from _peer_rows(small, ours[small])


def _prepared(place: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepare(embedded_documents(), place / "corpus")
    return place / "corpus" / "train"


def _features(store: ads.TokenStore, wanted: int, place: Path) -> tuple[Path, Row]:
    """Windows at the stride that gives about `wanted` of them, and how fast their features were made."""
    stride = max(1, round(store.num_tokens / wanted))
    dataset = ads.WindowDataset(store, ads.WindowConfig(SEQ_LEN, stride=stride, pack="concat"))
    path = place / f"features_{wanted}.npy"
    start = time.process_time()
    ads.hashed_features(dataset, out=path)
    seconds = time.process_time() - start
    tokens = len(dataset) * SEQ_LEN
    text = f"{tokens / seconds / 1e6:.1f} M tokens/s of one core's time"
    return path, Row(f"hashed features of {len(dataset):,} windows × {SEQ_LEN} tokens", text, "–", None)


def _ours(path: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "experiments.benchmarks.neighbors", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _peer_rows(path: Path, ours: dict[str, Any]) -> Iterator[Row]:
    script = Path(__file__).with_name("neighbor_peers.py")
    what = f"{NUM_NEIGHBORS} neighbours of {ours['rows']:,} windows, time"
    try:
        python = _environment.peer_python(PEERS)
        done = subprocess.run(
            [str(python), str(script), str(path), str(NUM_NEIGHBORS), str(PEER_QUERIES)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise _environment.PeerMissingError(f"failed: {(done.stderr.splitlines() or ['no message'])[-1]}")
    except _environment.PeerMissingError as missing:
        yield Row(what, seconds_text(ours["seconds"]), f"scikit-learn, hnswlib: {missing}", None)
        return
    for name, figure in json.loads(done.stdout.splitlines()[-1]).items():
        peer = f"{seconds_text(figure['seconds'])}, recall {figure['recall']:.3f} ({name})"
        mine = f"{seconds_text(ours['seconds'])}, recall {ours['recall']:.3f}"
        yield Row(what, mine, peer, ours["seconds"] / figure["seconds"])


def measure(path: str) -> dict[str, Any]:
    """Ours on the features in `path`: seconds, peak gigabytes of this process, and how it searched."""
    import resource

    features = ads.neighbors.open_features(path)
    start = time.perf_counter()
    found = ads.neighbors.nearest(features, num_neighbors=NUM_NEIGHBORS)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)
    return {
        "rows": len(features),
        "dim": features.shape[1],
        "seconds": seconds,
        "gigabytes": peak,
        "recall": found.recall,
        "index": found.index,
        "effort": found.effort,
        "short": int(np.count_nonzero(found.missing)),
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
