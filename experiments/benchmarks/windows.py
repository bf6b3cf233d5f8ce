"""Windows read per second, and the size and speed of a plan of a billion windows.

Peers are measured where they are installed: grain, torchdata, datatrove and megatron-core, each by its own way to read
a window at random from a file of tokens; and a nanoGPT-style loop.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import tempfile
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_sampling import TokenStore, WindowConfig, WindowDataset
from experiments.benchmarks._row import Row, best_seconds

NUM_TOKENS = 8_000_000  # 16 MB of uint16
SEQ_LEN, BATCH_SIZE = 1024, 256
BATCHES = 12
REPEATS = 40  # short runs, many times: on a shared machine one of them is undisturbed
PLAN_DOCUMENTS, PLAN_WINDOWS_EACH = 10**6, 1000

Ids = NDArray[np.int64]


def rows() -> Iterator[Row]:
    """Every reader gives inputs and labels as int64, in batches, at random starts; best of many short runs each."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = _store(Path(folder) / "store")
        dataset = WindowDataset(store, WindowConfig(SEQ_LEN, 64))
        rng = np.random.default_rng(0)
        batches = [rng.integers(0, len(dataset), BATCH_SIZE) for _ in range(BATCHES)]
        ours = _speed(dataset.read, batches)
        for name, speed in _peers(Path(folder), store, dataset, batches):
            yield _row(f"windows/s of {SEQ_LEN}, pack='none', against {name}", ours, speed, name)
        peer = _speed(_nanogpt_style(store, dataset), batches)
        for name, config in (
            ("pack='concat', documents of 2,000", WindowConfig(SEQ_LEN, pack="concat")),
            ("pack='best_fit', documents of 2,000", WindowConfig(SEQ_LEN, pack="best_fit")),
        ):
            packed = WindowDataset(store, config)
            ids = [rng.integers(0, len(packed), BATCH_SIZE) for _ in range(BATCHES)]
            yield _row(f"windows/s of {SEQ_LEN}, {name}", _speed(packed.read, ids), peer, "nanoGPT-style loop")
        yield from _plan_rows(Path(folder))


def _row(what: str, ours: float, peer: float, name: str) -> Row:
    return Row(what, f"{ours / 1e6:.3f} M/s", f"{peer / 1e6:.3f} M/s ({name})", peer / ours)


def _speed(read: Callable[[Ids], object], batches: list[Ids]) -> float:
    """Windows per second."""
    read(batches[0])

    def run() -> None:
        for ids in batches:
            read(ids)

    return BATCH_SIZE * len(batches) / best_seconds(run, REPEATS)


def _store(path: Path) -> TokenStore:
    tokens = np.random.default_rng(0).integers(1, 60_000, NUM_TOKENS).astype(np.uint16)
    return TokenStore.write(path, np.split(tokens, range(2000, NUM_TOKENS, 2000)), vocab_size=60_000, eos_id=0)


def _peers(folder: Path, store: TokenStore, dataset: WindowDataset, batches: list[Ids]) -> Iterator[tuple[str, float]]:
    yield "nanoGPT-style loop", _speed(_nanogpt_style(store, dataset), batches)
    makers: tuple[tuple[str, str, Callable[[Path, TokenStore, WindowDataset], Callable[[Ids], object]]], ...] = (
        ("torchdata", "torchdata.nodes", _torchdata),
        ("grain", "grain", _grain),
        ("datatrove", "datatrove.utils.dataset", _datatrove),
        ("megatron-core", "megatron.core.datasets.indexed_dataset", _megatron),
    )
    for name, module, make in makers:
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(module) is not None:
                yield name, _speed(make(folder, store, dataset), batches)


def _nanogpt_style(store: TokenStore, dataset: WindowDataset) -> Callable[[Ids], object]:
    tokens, starts = store.tokens, dataset.starts()

    def read(ids: Ids) -> object:
        own = starts[ids].tolist()
        x = torch.stack([torch.from_numpy(tokens[s : s + SEQ_LEN].astype(np.int64)) for s in own])
        y = torch.stack([torch.from_numpy(tokens[s + 1 : s + 1 + SEQ_LEN].astype(np.int64)) for s in own])
        return x, y

    return read


class _Slices:
    """A window by slicing the map, as map-style datasets do; what torchdata and grain are given to read."""

    def __init__(self, store: TokenStore, dataset: WindowDataset) -> None:
        self.tokens, self.starts = store.tokens, dataset.starts()

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> dict[str, Any]:
        start = self.starts[index]
        block = self.tokens[start : start + SEQ_LEN + 1].astype(np.int64)
        return {"input_ids": block[:-1], "labels": block[1:]}


def _torchdata(folder: Path, store: TokenStore, dataset: WindowDataset) -> Callable[[Ids], object]:
    from torch.utils.data import default_collate
    from torchdata.nodes import Batcher, Loader, Mapper, MapStyleWrapper

    slices = _Slices(store, dataset)

    def read(ids: Ids) -> object:
        node = Mapper(Batcher(MapStyleWrapper(slices, ids.tolist()), len(ids)), default_collate)
        return next(iter(Loader(node)))

    return read


def _grain(folder: Path, store: TokenStore, dataset: WindowDataset) -> Callable[[Ids], object]:
    import grain

    slices = _Slices(store, dataset)

    class Order:
        def __init__(self, ids: Ids) -> None:
            self.ids = ids

        def __len__(self) -> int:
            return len(self.ids)

        def __getitem__(self, index: int) -> dict[str, Any]:
            return slices[int(self.ids[index])]

    return lambda ids: grain.MapDataset.source(Order(ids)).batch(len(ids))[0]


def _datatrove(folder: Path, store: TokenStore, dataset: WindowDataset) -> Callable[[Ids], object]:
    from datatrove.utils.dataset import DatatroveFileDataset

    # Its windows are side by side: ids are taken modulo their number.
    windows = DatatroveFileDataset(str(store.path / "tokens.bin"), SEQ_LEN, token_size=2)

    def read(ids: Ids) -> object:
        blocks = torch.stack([windows[index]["input_ids"] for index in (ids % len(windows)).tolist()])
        return blocks[:, :-1], blocks[:, 1:]

    return read


def _megatron(folder: Path, store: TokenStore, dataset: WindowDataset) -> Callable[[Ids], object]:
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

    prefix = folder / "megatron"
    builder = IndexedDatasetBuilder(str(prefix) + ".bin", dtype=np.uint16)
    starts, ends = store.document_starts, np.asarray(store.document_ends)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        builder.add_document(torch.from_numpy(store.tokens[start:end].astype(np.int32)), [end - start])
    builder.finalize(str(prefix) + ".idx")
    indexed = IndexedDataset(str(prefix))
    documents = dataset.documents()
    offsets = dataset.starts() - starts[documents]

    def read(ids: Ids) -> object:
        places = zip(documents[ids].tolist(), offsets[ids].tolist(), strict=True)
        blocks = np.stack([indexed.get(doc, offset=at, length=SEQ_LEN + 1).astype(np.int64) for doc, at in places])
        return torch.from_numpy(blocks[:, :-1].copy()), torch.from_numpy(blocks[:, 1:].copy())

    return read


def _plan_rows(folder: Path) -> Iterator[Row]:
    """A plan over a file that is all holes, as large as a billion windows need; against one of a thousandth."""
    large = _sparse_store(folder / "large", PLAN_DOCUMENTS)
    small = _sparse_store(folder / "small", max(PLAN_DOCUMENTS // 1000, 1))
    config = WindowConfig(128)
    seconds = best_seconds(lambda: WindowDataset(large, config), 3)
    tracemalloc.start()
    dataset = WindowDataset(large, config)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield Row(
        f"seconds to plan {len(dataset):.0e} windows over {PLAN_DOCUMENTS:.0e} documents",
        f"{seconds:.2f} s",
        "1 s",
        seconds,
    )
    yield Row("and its peak of memory", f"{peak / 1e6:.0f} MB", "100 MB", peak / 1e8)
    rng = np.random.default_rng(0)
    times = []
    for one in (dataset, WindowDataset(small, config)):
        batches = [rng.integers(0, len(one), BATCH_SIZE) for _ in range(BATCHES)]
        times.append(BATCH_SIZE / _speed(one.starts, batches))
    yield Row(
        f"starts of {BATCH_SIZE} random ids of {len(dataset):.0e} windows",
        f"{times[0] * 1e6:.0f} us",
        f"{times[1] * 1e6:.0f} us (of a thousandth)",
        times[0] / times[1],
    )


def _sparse_store(path: Path, documents: int) -> TokenStore:
    path.mkdir()
    length = PLAN_WINDOWS_EACH * 128 + 1
    with (path / "tokens.bin").open("wb") as file:
        file.truncate(2 * documents * length)
    arrays = {
        "document_ends": np.arange(1, documents + 1, dtype=np.int64) * length,
        "document_sources": np.zeros(documents, np.int32),
        "document_keys": np.arange(documents, dtype=np.uint64),
    }
    for name, values in arrays.items():
        np.save(path / f"{name}.npy", values)
    template = TokenStore.write(path / "template", [[1]], vocab_size=60_000, eos_id=0)
    metadata = json.loads((template.path / "metadata.json").read_text())
    files = {name: {**entry, "bytes": (path / name).stat().st_size} for name, entry in metadata["files"].items()}
    metadata |= {"num_tokens": documents * length, "num_documents": documents, "files": files}
    metadata.pop("checksum", None)  # of what the template's metadata said
    (path / "metadata.json").write_text(json.dumps(metadata))
    return TokenStore.open(path)
