"""Processes that Lightning starts itself: all can be sent to them, and what they learned is in the checkpoint."""

import sys
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "callbacks"))  # for tiny, also in processes that are spawned

from tiny import NUM_WINDOWS, Bigram, make_parts

from adaptive_sampling.callbacks import SamplingMonitor
from adaptive_sampling.weight_files import read_weights


@pytest.mark.filterwarnings("ignore:no learned weight can count", "ignore::DeprecationWarning", "ignore:.*fork.*")
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_what_spawned_processes_learned_is_read_from_a_checkpoint(tmp_path, capfd, ranks):
    torch.manual_seed(0)
    _, loader, callback = make_parts(update_every=2)
    saving = pl.callbacks.ModelCheckpoint(tmp_path, save_last=True)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp_spawn",
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback, SamplingMonitor(every_n_steps=4), saving],
    )
    trainer.fit(Bigram(), loader)
    learned = read_weights(tmp_path / "last.ckpt", NUM_WINDOWS)
    assert len(np.unique(learned)) > 5
    assert "Read the learned weights from a checkpoint" in capfd.readouterr().err
    # The main process trained nothing, and does not claim a policy.
    assert callback.num_steps == 0
    with pytest.raises(ValueError, match="number of windows"):
        _ = callback.policy.weights
