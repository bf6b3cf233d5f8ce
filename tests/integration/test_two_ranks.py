"""Two gloo processes: disjoint shares of one order, weights that agree, errors that surface on both."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from ranks import launch as launch_ranks

import adaptive_sampling as ads

PREAMBLE = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
import lightning.pytorch as pl, numpy as np, torch, torch.nn.functional as F
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, Dataset
import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling

class Windows(Dataset):
    def __len__(self): return 40
    def __getitem__(self, i): return {"x": torch.tensor([i % 7]), "y": torch.tensor([(3 * i) % 7]), "window_id": i}

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(7, 7)
        self.ids = []
    def training_step(self, batch, batch_idx):
        self.ids += batch["window_id"].tolist()
        losses = batch["window_id"].float() + 1 if FIXED else None
        loss = F.cross_entropy(self.table(batch["x"]).view(-1, 7), batch["y"].view(-1))
        return {"loss": loss, "per_sample_loss": losses} if FIXED else loss
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)

def run(world, batch_size, policy=None, sampler_seed=None, epochs=3, shared=False):
    torch.manual_seed(0)
    data = Windows()
    sampler = ads.AdaptiveSampler(data, seed=sampler_seed, block_size=8, shared_memory=shared)
    sampler.lag = 3
    policy = policy or ads.WeightPolicy(warmup=0, cooldown=0)
    callback = AdaptiveSampling(sampler, policy, update_every=2)
    strategy = DDPStrategy(process_group_backend="gloo") if world > 1 else "auto"
    trainer = pl.Trainer(max_epochs=epochs, accelerator="cpu", devices=world, strategy=strategy, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[callback])
    module = Module()
    trainer.fit(module, DataLoader(data, batch_size=batch_size, sampler=sampler))
    rank = trainer.global_rank
    assert trainer.train_dataloader.sampler is sampler
    with open(f"{OUT}/world{world}-rank{rank}.json", "w") as file:
        json.dump({"ids": module.ids, "weights": sampler.weights.tolist(), "steps": trainer.global_step}, file)
    if world > 1:
        # Left to the interpreter's exit, gloo's threads may still run when they are torn down.
        torch.distributed.destroy_process_group()
"""


def launch(tmp_path, body, *, fixed, check=True):
    script = tmp_path / "script.py"
    script.write_text(f"OUT, FIXED = {str(tmp_path)!r}, {fixed}\n" + PREAMBLE + textwrap.dedent(body))
    return launch_ranks([script], check=check)


def load(tmp_path, world, rank):
    return json.loads((tmp_path / f"world{world}-rank{rank}.json").read_text())


@pytest.mark.parametrize("shared", [False, True])
def test_two_ranks_see_disjoint_shares_of_the_order_that_one_process_sees(tmp_path, shared):
    # Losses are a function of the id, so two ranks with half the batch must draw what one process draws, bit for bit.
    launch(tmp_path, f"run(2, 4, sampler_seed=5, shared={shared})", fixed=True)
    (tmp_path / "single").mkdir()
    script = f"OUT, FIXED = {str(tmp_path)!r}, True\n" + PREAMBLE + "run(1, 8, sampler_seed=5)\n"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)
    ranks, single = [load(tmp_path, 2, rank) for rank in range(2)], load(tmp_path, 1, 0)
    merged = np.array([rank["ids"] for rank in ranks]).T.ravel().tolist()
    assert merged == single["ids"]
    assert ranks[0]["steps"] == single["steps"] == 15
    first_epoch = [set(rank["ids"][:20]) for rank in ranks]
    assert not (first_epoch[0] & first_epoch[1] - {i for i in range(40) if merged[:40].count(i) > 1})
    assert ranks[0]["weights"] == ranks[1]["weights"] == single["weights"]
    assert len(set(single["weights"])) > 5


def test_without_a_seed_rank_zero_chooses_for_all(tmp_path):
    body = """
        torch.manual_seed(100 + int(os.environ["LOCAL_RANK"]))
        original = torch.manual_seed
        torch.manual_seed = lambda seed: None
        run(2, 4, epochs=1)
    """
    launch(tmp_path, body, fixed=True)
    ids = load(tmp_path, 2, 0)["ids"] + load(tmp_path, 2, 1)["ids"]
    assert len(ids) == 40
    assert len(set(ids)) >= 34  # weights may repeat a few windows late in the epoch; unequal seeds would repeat half


def test_an_error_on_rank_zero_surfaces_on_both_with_its_message(tmp_path):
    body = """
        class Broken(ads.WeightPolicy):
            def update(self, *args, **kwargs):
                raise ArithmeticError("the policy broke")
        run(2, 4, policy=Broken(warmup=0, cooldown=0))
    """
    outputs = launch(tmp_path, body, fixed=True, check=False)
    assert "ArithmeticError: the policy broke" in outputs[0]
    assert "rank 0 could not update the weights: ArithmeticError: the policy broke" in outputs[1]


@pytest.mark.parametrize("num_draws", [10, 11])
def test_ranks_without_lightning_take_equal_numbers(num_draws):
    samplers = [ads.AdaptiveSampler(10, num_draws=num_draws, seed=0, rank=r, world_size=2) for r in range(2)]
    shares = [list(sampler) for sampler in samplers]
    assert len(shares[0]) == len(shares[1]) == 5
    assert shares[0] != shares[1]
