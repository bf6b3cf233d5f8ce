"""A three-arm comparison for processes that are killed: `python kill_me.py OUT SECONDS_PER_STEP [JOBS]`."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from tiny_training import Bigram, tiny_data
from torch import Tensor

from adaptive_sampling.ab import Arm, Result, run_ab
from adaptive_sampling.weights import WeightPolicy

STEPS = 40
ARMS = (
    Arm("uniform"),
    Arm("adaptive", WeightPolicy, update_every=2),
    Arm("placebo", placebo_of="adaptive", update_every=2),
)


class Slow(Bigram):
    """Gives the one who kills it time to do so; its dropout shows whether random states are restored."""

    pause = 0.0

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        time.sleep(self.pause)
        return super().training_step(batch, batch_idx)

    def configure_optimizers(self) -> Any:
        """A schedule that moves rates and momenta, so that a resumed optimizer is not what it was at the start."""
        optimizer = super().configure_optimizers()
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=self.lr, total_steps=STEPS + 1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def compare(out: Path, **settings: Any) -> Result:
    settings = {"max_steps": STEPS, "seeds": (0,), "checkpoint_every": 3, **settings}
    return run_ab(ARMS, Slow, tiny_data, out_dir=out, **settings)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    Slow.pause = float(sys.argv[2])
    compare(Path(sys.argv[1]), jobs=int(sys.argv[3]) if len(sys.argv) > 3 else 1)
