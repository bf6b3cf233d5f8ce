"""One rank of a two-epoch run over a DataLoader: `python resume_rank.py JOBS.json OUT_FOLDER`.

A run begins afresh or from a state, hands over new weights after every step as a callback does, and may save its state
before the first step and after each. Windows per step over all ranks are the same for every number of ranks.
"""

import json
import os
import sys
import warnings
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from adaptive_sampling import AdaptiveSampler

SIZE, EPOCHS = 52, 2
PER_STEP = 8  # windows over all ranks: seven steps per epoch, of which the last has four
STEPS = EPOCHS * -(-SIZE // PER_STEP)
LAG = 4  # steps; more than two workers with one batch each fetch ahead


class Windows(Dataset):
    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return index


@dataclass
class Job:
    """What one run does. Fields are primitives, so that a job can be sent as JSON."""

    name: str
    workers: int
    state: str | None = None  # begin from this file
    save_as: str | None = None  # prefix of the files to write


def change_weights(sampler):
    """New weights that depend on the place in the stream alone: of all windows, or of some, zeros among them."""
    rng = np.random.default_rng(sampler.position)
    ids = None if sampler.position % 3 == 0 else np.sort(rng.choice(SIZE, 6, replace=False))
    values = rng.gamma(1.0, 1.0, SIZE if ids is None else 6) * rng.choice([0.0, 1.0, 8.0], SIZE if ids is None else 6)
    if ids is None:
        values[0] = 1.0  # never all zero
    else:
        values[ids == 0] = 1.0
    sampler.schedule_weights(sampler.position + LAG * PER_STEP, ids, values)


def run(job, world=1):
    """Ids per step on this rank. A run that begins from a state is interrupted once more, after its first step."""
    steps = []
    first = True
    sampler = begin(job.state)
    if job.save_as:
        save(sampler, f"{job.save_as}-0.pt")
    while sampler.position < EPOCHS * SIZE:
        loader = DataLoader(
            Windows(),
            batch_size=PER_STEP // world,
            sampler=sampler,
            num_workers=job.workers,
            prefetch_factor=1 if job.workers else None,
        )
        for batch in loader:
            steps.append(batch.tolist())
            sampler.consume(len(batch))
            change_weights(sampler)
            if job.save_as:
                save(sampler, f"{job.save_as}-{len(steps)}.pt")
            elif first:
                break
        if first and not job.save_as:
            state, first = sampler.full_state(), False
            sampler = AdaptiveSampler(SIZE, seed=123)
            adopt(sampler, state)
            sampler.manage()
    return steps


def adopt(sampler, state):
    """Load a state whose seed and block size are other ones on purpose: those of the state must win."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the sampler goes on with")
        sampler.load_full_state(state)


def begin(state):
    # Another block size and seed than those of the state, which must win.
    sampler = AdaptiveSampler(SIZE, block_size=PER_STEP if state is None else 5, seed=None if state is None else 99)
    sampler.manage()
    if state is not None:
        adopt(sampler, torch.load(state, weights_only=True))
    return sampler


def save(sampler, path):
    state = sampler.full_state()
    if sampler.rank == 0:
        torch.save(state, path)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # A user who seeds each rank differently: rank 0's choice counts for all.
    torch.manual_seed(100 + rank)
    dist.init_process_group("gloo")
    with open(sys.argv[1]) as file:
        jobs = [Job(**job) for job in json.load(file)]
    steps = {}
    for job in jobs:
        steps[job.name] = run(job, world)
        # What this job saved, the next one may read.
        dist.barrier()
    with open(os.path.join(sys.argv[2], f"rank{rank}.json"), "w") as file:
        json.dump(steps, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
