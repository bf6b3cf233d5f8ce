"""One rank of trainings under the callback: `python callback_rank.py OUT_FOLDER`; their ids, weights and warnings."""

import json
import os
import sys
import warnings

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import BatchSampler, DataLoader, Dataset

import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling

SIZE, PER_STEP, EPOCHS = 42, 8, 3
STOPS = (1, 5, 7, 12)  # between two updates, at the end of an epoch (6 steps), in later ones


class Windows(Dataset):
    def __init__(self, size=SIZE):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        return {"x": torch.tensor([i % 7]), "y": torch.tensor([(3 * i) % 7]), "window_id": i}


class Module(pl.LightningModule):
    """Losses are a function of the id, not of the number of ranks; rank 1 may give odd ones."""

    def __init__(self, odd_at=None, fixed=True):
        super().__init__()
        self.table = torch.nn.Embedding(7, 7)
        self.ids, self.odd_at, self.fixed = [], odd_at, fixed

    def training_step(self, batch, batch_idx):
        self.ids.append(batch["window_id"].tolist())
        loss = F.cross_entropy(self.table(batch["x"]).view(-1, 7), batch["y"].view(-1))
        if not self.fixed:
            return loss
        odd = self.odd_at == batch_idx and self.global_rank == 1
        losses = torch.full((3,), float("nan")) if odd else (batch["window_id"] % 11).float() + 1
        return {"loss": loss, "per_sample_loss": losses}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Saving(pl.Callback):
    def __init__(self, folder, stops):
        self.folder, self.stops = folder, stops

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step in self.stops:
            trainer.save_checkpoint(self.folder / f"step-{trainer.global_step}.ckpt")


class Perturbing(pl.Callback):
    """A user's mistake: weights changed on one rank alone."""

    def __init__(self, sampler):
        self.sampler = sampler

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == 3 and trainer.global_rank == 1:
            self.sampler.update_weights([0], [2.0])


def run(
    world,
    *callbacks,
    make_module=Module,
    perturb=False,
    batch_sampler=False,
    ckpt_path=None,
    epochs=EPOCHS,
    megabytes=64.0,
    missing=0,
    seed=5,
    peeked=0,
    own=None,
):
    """Ids per step on this rank, the sampler's weights, the policy's scores, and the warnings."""
    torch.manual_seed(0)
    data, module = Windows(SIZE - missing), make_module()
    sampler = ads.AdaptiveSampler(data, seed=seed, block_size=8)
    sampler.draw(peeked)
    if own is not None:
        sampler.set_weights([1.0 + own] + [1.0] * (SIZE - 1))
    sampler.lag = 3
    policy = ads.WeightPolicy(warmup=0, cooldown=0, normalize_every=2)
    ours = AdaptiveSampling(sampler, policy, update_every=4, max_megabytes_in_checkpoint=megabytes)
    size = PER_STEP // world
    loader = (
        DataLoader(data, batch_sampler=BatchSampler(sampler, size, False))
        if batch_sampler
        else DataLoader(data, batch_size=size, sampler=sampler)
    )
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=world,
        strategy=DDPStrategy(process_group_backend="gloo") if world > 1 else "auto",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ours, *callbacks, *([Perturbing(sampler)] if perturb else [])],
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error = None
        try:
            trainer.fit(module, loader, ckpt_path=ckpt_path)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
    return {
        "ids": module.ids,
        "weights": sampler.weights.tolist(),
        "scores": torch.nan_to_num(torch.from_numpy(policy.scores), -1.0).tolist() if policy.num_windows else [],
        "observations": ours.num_observations,
        "warnings": [str(w.message) for w in caught],
        "error": error,
    }


def main(folder):
    world = int(os.environ["WORLD_SIZE"])
    results = {"unbroken": run(world, Saving(folder, STOPS))}
    for stop in STOPS:
        results[f"resumed {stop}"] = run(world, ckpt_path=folder / f"step-{stop}.ckpt")
    run(world, Saving(folder / "beside", (7,)), megabytes=0.0)
    results["resumed from two files"] = run(world, ckpt_path=folder / "beside" / "step-7.ckpt")
    results["one window fewer on the last"] = run(world, missing=int(int(os.environ["RANK"]) == world - 1))
    results["own seeds"] = run(world, seed=5 + int(os.environ["RANK"]))
    results["drawn on one alone"] = run(world, peeked=int(os.environ["RANK"]))
    results["own weights"] = run(world, own=int(os.environ["RANK"]))
    results["odd"] = run(world, make_module=lambda: Module(odd_at=2))
    results["real losses"] = run(world, make_module=lambda: Module(fixed=False), epochs=1)
    results["perturbed"] = run(world, perturb=True)
    results["batch sampler"] = run(world, batch_sampler=True)
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(results))
    # Left to the interpreter's exit, gloo's threads may still run when they are torn down.
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    from pathlib import Path

    main(Path(sys.argv[1]))
