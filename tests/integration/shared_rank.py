"""One rank of a run with one memory per node: `python shared_rank.py OUT_FOLDER [--state FILE] [--stop STEP] [--die]`.

Ranks train at paces of their own, prefetch differently, and hand over new weights by schedule; a second sampler changes
them at once. Windows per step over all ranks are the same for every number of ranks.
"""

import argparse
import json
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from adaptive_sampling import AdaptiveSampler

SIZE, NUM_DRAWS, PER_STEP, STEPS, LAG = 300, 120, 12, 25, 6


def change(sampler, position=None):
    """New weights that depend on the place in the stream alone."""
    rng = np.random.default_rng(sampler.position)
    ids = None if rng.random() < 0.3 else rng.choice(SIZE, 9, replace=False)
    values = rng.gamma(1.0, 1.0, SIZE if ids is None else 9) + 0.01
    if position is not None:
        sampler.schedule_weights(position, ids, values)
    elif ids is None:
        sampler.set_weights(values)
    else:
        sampler.update_weights(ids, values)


def new_sampler(shared, seed=None):
    return AdaptiveSampler(SIZE, num_draws=NUM_DRAWS, block_size=4, seed=seed, shared_memory=shared)


def train(sampler, world, workers, stop=None, out=None):
    """Ids of this rank, step by step, from the sampler's place to the end; with `stop`, the state behind that step."""
    ids = []
    while sampler.position < STEPS * PER_STEP:
        loader = DataLoader(
            range(SIZE), PER_STEP // world, sampler=sampler, num_workers=workers, prefetch_factor=2 if workers else None
        )
        for batch in loader:
            time.sleep(random.random() * 0.004)
            ids.append(batch.tolist())
            sampler.consume(len(batch))
            change(sampler, sampler.position + LAG * PER_STEP)
            if len(ids) == stop:
                torch.save(sampler.full_state(), out)
            if sampler.position >= STEPS * PER_STEP:
                break
    return ids


def change_at_once(sampler, world):
    """Ids of this rank where weights change at once, with a jump to a later epoch on the way."""
    ids = []
    for epoch in (0, 1, 4):
        sampler.set_epoch(epoch)
        for i, window in enumerate(sampler):
            ids.append(window)
            if (i + 1) % (PER_STEP // world) == 0:
                time.sleep(random.random() * 0.002)
                change(sampler)
            if epoch == 1 and i == NUM_DRAWS // world // 2:
                break
    return ids


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--state")
    arguments.add_argument("--stop", type=int)
    arguments.add_argument("--die", action="store_true")
    options = arguments.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(100 + rank)
    random.seed(rank)
    dist.init_process_group("gloo")
    sampler = new_sampler(True)
    sampler.manage()
    if options.state:
        sampler.load_full_state(torch.load(options.state, weights_only=True))
    else:
        change(sampler)
    seed = sampler.seed
    if options.die:
        sampler._fill(100)
        dist.barrier()
        if rank == world - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.5)
        sampler._fill(200)  # the others can go on
        print("still draws", flush=True)
        os._exit(0)
    ids = train(sampler, world, rank % 2 * 2, options.stop, options.out / f"state{rank}.pt")
    with open("/proc/self/smaps") as file:
        maps = [line for line in file if "adaptive-sampling-" in line]
    result = {"ids": ids, "seed": seed, "maps": maps}
    if not options.state:
        result["at_once"] = change_at_once(new_sampler(True, seed=5), world)
    (options.out / f"rank{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
