"""Blocks of draws and changes of weights, against what torch, NumPy and TorchRL offer for them."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import WeightedRandomSampler

from adaptive_sampling import AdaptiveSampler
from experiments.benchmarks._environment import PeerMissingError, peer_python
from experiments.benchmarks._row import Row, best_seconds, seconds_text
from experiments.benchmarks._workload import BLOCKS, BUDGET, NUM_CHANGED, REPEATS, changes, make_weights

SIZES = (10**6, 10**7)
LARGE_SIZES = (10**8,)  # 4 GB of memory; one process at a time
TORCHRL = ("torch==2.14.1", "torchrl==0.14.1")
PEER_LIMIT = 1800  # seconds
ROUNDS = 3  # all in turn, so that a machine that is slow for a minute is not slow for one of them alone
OURS = "AdaptiveSampler"
EPOCH_LIMIT = 10**6  # epochs id by id are measured up to this size

# What is measured, and how a table says it. Peers lack what they do not have.
MEASURES = {
    **{f"draw {block}": f"a block of {block:,} draws" for block in BLOCKS},
    "change": f"change {NUM_CHANGED:,} weights",
    "change and draw": f"from {NUM_CHANGED:,} changed weights to 32 draws that see them",
    "reissue": "replace all weights",
    "issue": "issue the tickets of an epoch (peers: fill the tree)",
    "start": "start: from weights to the first draw",
    "epoch": "an epoch of N draws, id by id",
    "bytes": "bytes per window",
}
Figures = dict[str, float | str]  # measure → seconds or bytes per window, or why there is none


def rows(*, large: bool = False) -> Iterator[Row]:
    """One row per size, measure and peer; all peers of a size are measured in the same run.

    Args:
        large: sizes of 10^8 too.
    """
    for size in (*SIZES, *(LARGE_SIZES if large else ())):
        best: dict[str, Figures] = {}
        for _ in range(ROUNDS):
            for who, figures in _all_figures(size):
                best[who] = _better(best.get(who, {}), figures)
        ours = best.pop(OURS)
        for measure, words in MEASURES.items():
            for peer, figures in best.items():
                if measure in figures and measure in ours:
                    yield _row(f"{words}, N = {size:.0e}", measure, ours[measure], peer, figures[measure])


def _all_figures(size: int) -> Iterator[tuple[str, Figures]]:
    yield OURS, our_figures(size)
    yield "torch.multinomial", multinomial_figures(size)
    yield "WeightedRandomSampler", weighted_random_sampler_figures(size)
    yield "NumPy Generator.choice", choice_figures(size)
    yield from torchrl_figures(size).items()


def _better(known: Figures, figures: Figures) -> Figures:
    """The lesser figure per measure; a reason why there is none gives way to a figure."""
    numbers = {
        measure: min(figure, before) if isinstance(before := known.get(measure), float) else figure
        for measure, figure in figures.items()
        if isinstance(figure, float)
    }
    return {**figures, **known, **numbers}


def _row(what: str, measure: str, ours: float | str, peer: str, theirs: float | str) -> Row:
    assert isinstance(ours, float)
    if isinstance(theirs, str):
        return Row(what, _text(measure, ours), f"{peer}: {theirs}", None)
    return Row(what, _text(measure, ours), f"{_text(measure, theirs)} ({peer})", ours / theirs)


def _text(measure: str, figure: float) -> str:
    if measure == "bytes":
        return f"{figure:.1f}"
    if measure.startswith("draw "):
        draws = int(measure.split()[1])
        return f"{seconds_text(figure)} = {draws / figure / 1e6:.3g} M/s"
    return seconds_text(figure)


def _best(run: Callable[[], object]) -> float:
    return best_seconds(run, REPEATS, BUDGET)


def _held_bytes(make: Callable[[], object]) -> float:
    """Bytes of memory that the result of `make` keeps; what it needed on the way is not counted."""
    gc.collect()
    tracemalloc.start()
    kept = make()
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return float(held)


def our_figures(size: int) -> Figures:
    """`AdaptiveSampler` with `num_draws = N`; changes go through its checks, as a callback's do."""
    weights = make_weights(size)

    def started(block_size: int) -> AdaptiveSampler:
        sampler = AdaptiveSampler.from_weights(weights, block_size=block_size, seed=0)
        sampler.draw(1)
        return sampler

    figures: Figures = {"bytes": _held_bytes(lambda: started(BLOCKS[0])) / size}
    figures["start"] = best_seconds(lambda: started(1), 2, BUDGET)
    figures["issue"] = _issue_seconds(AdaptiveSampler.from_weights(weights, block_size=1, seed=0))
    for block in BLOCKS:
        figures[f"draw {block}"] = _draw_seconds(started(block), block)
    figures |= _change_seconds(started(32), weights)
    if size <= EPOCH_LIMIT:
        sampler = AdaptiveSampler.from_weights(weights, seed=0)
        figures["epoch"] = best_seconds(lambda: _iterate(sampler), 3)
    return figures


def _issue_seconds(sampler: AdaptiveSampler) -> float:
    """Each jump ahead issues a whole epoch."""
    sampler.draw(1)
    return best_seconds(lambda: sampler.set_epoch(sampler.epoch + 1), 3, BUDGET)


def _draw_seconds(sampler: AdaptiveSampler, block: int) -> float:
    """Per block, over enough of them that none comes free because an earlier one was drawn together with it."""
    sampler.draw(block - 1)  # the rest of the first block
    blocks = 4 * BLOCKS[0] // block

    def run() -> None:
        for _ in range(blocks):
            sampler.draw(block)

    return _best(run) / blocks


def _change_seconds(sampler: AdaptiveSampler, weights: NDArray[np.float32]) -> Figures:
    """Blocks of `sampler` are of 32, so that no draw made before a change waits to be handed out."""
    changed = changes(weights)
    sampler.draw(31)

    def change_and_draw() -> None:
        sampler.update_weights(*next(changed))
        sampler.draw(32)

    return {
        "change": _best(lambda: sampler.update_weights(*next(changed))),
        "change and draw": _best(change_and_draw),
        "reissue": best_seconds(lambda: sampler.set_weights(weights), 3, BUDGET),
    }


def _iterate(ids: object) -> None:
    for _ in ids:  # type: ignore[attr-defined]
        pass


def multinomial_figures(size: int) -> Figures:
    """`torch.multinomial` on a float32 tensor that is ready, with replacement."""
    tensor = torch.from_numpy(make_weights(size))
    changed = _tensor_changes(tensor)

    def change_and_draw() -> None:
        ids, values = next(changed)
        tensor[ids] = values
        torch.multinomial(tensor, 32, True)

    return _figures_or_refusal(
        {f"draw {block}": lambda n=block: torch.multinomial(tensor, n, True) for block in BLOCKS}
        | {"change and draw": change_and_draw}
    )


def weighted_random_sampler_figures(size: int) -> Figures:
    """`WeightedRandomSampler` of as many draws as a block has: it draws everything at its first `next`."""
    weights = torch.from_numpy(make_weights(size))
    changed, weights = _tensor_changes(weights), weights.double()
    samplers = {block: WeightedRandomSampler(weights, block) for block in (*BLOCKS, size)}

    def change_and_draw() -> None:
        ids, values = next(changed)
        samplers[32].weights[ids] = values.double()
        _iterate(samplers[32])

    runs: dict[str, Callable[[], object]] = {f"draw {n}": lambda s=samplers[n]: _iterate(s) for n in BLOCKS}
    runs["change and draw"] = change_and_draw
    figures = _figures_or_refusal(runs)
    if size <= EPOCH_LIMIT:
        figures["epoch"] = best_seconds(lambda: _iterate(samplers[size]), 3)
    if isinstance(figures["draw 32"], float):
        figures["bytes"] = float(samplers[size].weights.element_size())
    return figures


def choice_figures(size: int) -> Figures:
    """`numpy.random.Generator.choice` with probabilities: it adds them up afresh at every call."""
    weights, generator = make_weights(size), np.random.default_rng(3)
    changed, weights = changes(weights), weights.astype(np.float64)
    probabilities = weights / weights.sum()

    def change_and_draw() -> NDArray[np.int64]:
        ids, values = next(changed)
        weights[ids] = values
        return generator.choice(size, 32, p=weights / weights.sum())

    return _figures_or_refusal(
        {f"draw {block}": lambda n=block: generator.choice(size, n, p=probabilities) for block in BLOCKS}
        | {"change and draw": change_and_draw}
    )


def _tensor_changes(weights: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    return ((torch.from_numpy(ids), torch.from_numpy(values)) for ids, values in changes(weights.numpy()))


def _figures_or_refusal(runs: dict[str, Callable[[], object]]) -> Figures:
    figures: Figures = {}
    for measure, run in runs.items():
        try:
            figures[measure] = _best(run)
        except RuntimeError as error:
            figures[measure] = f"refuses: {str(error).splitlines()[0]}"
    return figures


def torchrl_figures(size: int) -> dict[str, Figures]:
    """Both TorchRL peers, from an environment of their own; where they cannot be had, every measure says why."""
    gc.collect()
    try:
        python = peer_python(TORCHRL)
        done = subprocess.run(
            [str(python), "-m", "experiments.benchmarks.torchrl_draws", str(size)],
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            capture_output=True,
            text=True,
            timeout=PEER_LIMIT,
            check=True,
        )
    except PeerMissingError as error:
        return {"TorchRL": {f"draw {BLOCKS[0]}": str(error)}}
    except subprocess.SubprocessError as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
        return {"TorchRL": {f"draw {BLOCKS[0]}": f"failed: {reason}"}}
    figures: dict[str, Figures] = json.loads(done.stdout.splitlines()[-1])
    return figures
