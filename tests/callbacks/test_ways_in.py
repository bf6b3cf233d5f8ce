"""Ways into a training: LightningCLI and YAML, torch.compile, a Hugging Face model; the user's lines and no more."""

import copy
import pickle

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny import NUM_WINDOWS, VOCAB, Bigram, Windows, make_parts, make_trainer
from torch.utils.data import DataLoader

import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling, LossCapture

pytestmark = pytest.mark.filterwarnings("ignore:no learned weight can count")


class TinyData(pl.LightningDataModule):
    """What a config names: the sampler is in its loader."""

    def __init__(self, batch_size: int = 4):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        sampler = ads.AdaptiveSampler(NUM_WINDOWS, seed=0)
        return DataLoader(Windows(), batch_size=self.batch_size, sampler=sampler)


class CliBigram(Bigram):
    def __init__(self):
        super().__init__()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*LightningCLI's args.*")
def test_a_yaml_file_names_callback_policy_and_monitor(tmp_path):
    pytest.importorskip("jsonargparse", reason="jsonargparse is not installed")
    from lightning.pytorch.cli import LightningCLI

    (tmp_path / "config.yaml").write_text(
        f"""
        trainer:
          max_epochs: 2
          accelerator: cpu
          logger: false
          enable_checkpointing: false
          enable_progress_bar: false
          enable_model_summary: false
          default_root_dir: {tmp_path}
          callbacks:
            - class_path: adaptive_sampling.callbacks.AdaptiveSampling
              init_args:
                update_every: 3
                policy:
                  class_path: adaptive_sampling.WeightPolicy
                  init_args:
                    power: 2.0
                    warmup: 3
                    cooldown: 0
                    cap: {{class_path: adaptive_sampling.weights.Linear, init_args: {{start: 2.0, stop: 4.0, end: 8}}}}
            - class_path: adaptive_sampling.callbacks.SamplingMonitor
              init_args: {{every_n_steps: 5}}
        data: {{batch_size: 6}}
        """
    )
    cli = LightningCLI(
        CliBigram,
        TinyData,
        args=["fit", "--config", str(tmp_path / "config.yaml")],
        save_config_callback=None,
        seed_everything_default=0,
    )
    callback = next(c for c in cli.trainer.callbacks if isinstance(c, AdaptiveSampling))
    assert callback.num_steps == 16
    assert callback.num_observations == 15 * 6
    settings = callback.policy.settings
    assert settings.power.at(0, 1) == 2.0
    assert (type(settings.warmup), settings.warmup) == (int, 3)  # steps, no fraction
    assert settings.cap.at(4, None) == 3.0


def test_a_number_on_the_command_line_is_the_place_of_ids():
    jsonargparse = pytest.importorskip("jsonargparse", reason="jsonargparse is not installed")
    parser = jsonargparse.ArgumentParser()
    parser.add_class_arguments(AdaptiveSampling, "callback")
    assert parser.parse_args(["--callback.id_key=-1"]).callback.id_key == -1
    assert parser.parse_args(["--callback.id_key=place"]).callback.id_key == "place"


def test_callback_is_copied_and_pickled_before_and_after_fit(tmp_path):
    _, loader, callback = make_parts()
    pickle.loads(pickle.dumps(callback))
    make_trainer(tmp_path, callback, max_epochs=1).fit(Bigram(), loader)
    for twin in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        np.testing.assert_array_equal(twin.policy.scores, callback.policy.scores)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compiled_losses_are_captured_without_compiling_again(inside):
    from torch._dynamo.testing import CompileCounter

    table = torch.nn.Embedding(VOCAB, VOCAB)

    def loss_of(ids, labels):
        return F.cross_entropy(table(ids).view(-1, VOCAB), labels.view(-1))

    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(loss_of if inside else table, backend=counter)
    for _ in range(5):
        ids, labels = torch.randint(0, VOCAB, (4, 6)), torch.randint(0, VOCAB, (4, 6))
        with LossCapture() as capture:
            loss = compiled(ids, labels) if inside else F.cross_entropy(compiled(ids).view(-1, VOCAB), labels.view(-1))
        by_hand = F.cross_entropy(table(ids).transpose(1, 2), labels, reduction="none").mean(1)
        torch.testing.assert_close(capture.calls[0].window_means(4), by_hand)
        torch.testing.assert_close(loss.detach(), by_hand.mean())
    assert counter.frame_count == 1
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_a_transformers_model_is_trained_with_the_usual_lines(tmp_path):
    import transformers

    config = transformers.GPT2Config(vocab_size=VOCAB, n_positions=8, n_embd=16, n_layer=1, n_head=2)

    class Causal(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = transformers.GPT2LMHeadModel(config)
            self.by_hand = {}

        def training_step(self, batch, batch_idx):
            out = self.model(batch["input_ids"], labels=batch["input_ids"])  # it shifts the labels itself
            with torch.no_grad():
                log_p = out.logits[:, :-1].log_softmax(-1)
                rows = -log_p.gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
            self.by_hand.update(zip(batch["window_id"].tolist(), rows.mean(1).tolist(), strict=True))
            return out.loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    _, loader, callback = make_parts(lag=100, update_every=1)
    module = Causal()
    make_trainer(tmp_path, callback, max_epochs=1).fit(module, loader)
    by_hand = [module.by_hand[i] for i in range(NUM_WINDOWS)]
    np.testing.assert_allclose(callback.policy.scores, by_hand, rtol=1e-5)
