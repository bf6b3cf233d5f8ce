"""What is logged: real loggers' files read back, frozen keys, and values that no logger may choke on."""

import csv
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from tiny import NUM_WINDOWS, VOCAB, Bigram, Killed, StopWithCheckpoint, Windows, make_parts, make_trainer
from torch.utils.data import DataLoader

import adaptive_sampling as ads
from adaptive_sampling.callbacks import AdaptiveSampling, SamplingMonitor, ScarcityRefresh
from adaptive_sampling.callbacks._histogram import Histogram

pytestmark = pytest.mark.filterwarnings("ignore:no learned weight can count")
KEYS = json.loads((Path(__file__).parents[1] / "golden" / "log_keys.json").read_text())


class Forward(Bigram):
    def forward(self, ids):
        return self.table(ids)


class TwoSources(Windows):
    source_names = ("web", "manuals")

    def sources(self):
        return (np.arange(NUM_WINDOWS) >= 40).astype(np.int64)


class Noting(Logger):
    """Keeps what it is sent; refuses falling steps, as W&B does, and numbers that are not finite, as MLflow should."""

    name = version = "noting"

    def __init__(self):
        super().__init__()
        self.sent = []

    def log_metrics(self, metrics, step=None):
        assert not self.sent or step >= self.sent[-1][0]
        assert all(np.isfinite(v) for v in metrics.values())
        self.sent.append((step, metrics))

    def log_hyperparams(self, *args, **kwargs):
        pass


def fit(tmp_path, loggers, *, every=5, module=None, dataset=None, monitor=None, **settings):
    dataset = dataset or TwoSources()
    sampler = ads.AdaptiveSampler(dataset, seed=0, block_size=4)
    sampler.lag = 2
    callback = AdaptiveSampling(sampler, ads.WeightPolicy(warmup=0, cooldown=0), update_every=2)
    monitor = monitor or SamplingMonitor(every_n_steps=every)
    trainer = make_trainer(tmp_path, callback, monitor, log_every_n_steps=1, **settings)
    trainer.loggers = loggers
    module = module or Forward()
    trainer.fit(module, DataLoader(dataset, batch_size=4, sampler=sampler))
    return monitor, callback, module


def generic(key):
    for part in ("share_drawn", "mean_loss"):
        if key.startswith(f"sampling/{part}/"):
            return f"sampling/{part}/<source>"
    return key


def test_the_keys_are_the_frozen_ones_and_values_are_those_by_hand(tmp_path):
    logger = Noting()
    _, callback, module = fit(tmp_path, [logger])
    sent = [metrics for _, metrics in logger.sent if any(k.startswith("sampling/") for k in metrics)]
    assert sorted({generic(key) for metrics in sent for key in metrics}) == KEYS["scalars"]
    last = sent[-1]
    weights = callback.sampler.weights.astype(np.float64)
    assert last["sampling/share_seen"] == len(set(module.trained[: 20 * 4])) / NUM_WINDOWS
    assert last["sampling/share_never_seen"] == 1 - last["sampling/share_seen"]
    assert last["sampling/share_drawn/web"] + last["sampling/share_drawn/manuals"] == pytest.approx(1)
    # Updates after steps 16, 18 and 20 lie between the logs at 15 and 20.
    ids, losses = np.array(module.trained[14 * 4 : 20 * 4]), np.array(module.losses[14 * 4 : 20 * 4])
    assert last["sampling/share_drawn/manuals"] == pytest.approx((ids >= 40).mean())
    assert last["sampling/mean_loss/web"] == pytest.approx(losses[ids < 40].mean(), rel=1e-5)
    unique = len(set(module.trained[: 20 * 4])) - len(set(module.trained[: 15 * 4]))
    assert last["sampling/repeat_rate"] == pytest.approx(1 - unique / 20)
    assert last["sampling/lag_steps"] == 2
    assert last["sampling/observations"] == 80
    assert last["sampling/overhead_percent"] > 0
    assert 0 < last["sampling/effective_sample_size"] <= 1
    assert last["sampling/top_weight"] <= 4.0 + 1e-5
    assert weights.max() / weights.mean() >= 1


def test_the_loss_of_hard_windows_is_that_of_a_fixed_set_and_touches_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("adaptive_sampling.callbacks.monitor._QUICK", 60.0)  # whatever else the machine does
    logger, watched, plain = Noting(), Forward(), Bigram()
    plain.load_state_dict(watched.state_dict())
    monitor, _, _ = fit(tmp_path, [logger], module=watched, monitor=SamplingMonitor(every_n_steps=1, hard_windows=20))
    fit(tmp_path, [], module=plain, monitor=SamplingMonitor(hard_windows=0))
    assert torch.equal(watched.table.weight, plain.table.weight)
    assert watched.trained == plain.trained
    assert len(monitor.hard.ids) == 20
    told = [m["sampling/hard_windows_loss"] for _, m in logger.sent if "sampling/hard_windows_loss" in m]
    assert len(set(told)) in (2, 3)  # every tenth log, of 22 with a set
    monitor.hard.choose(np.arange(NUM_WINDOWS, dtype=np.float32))
    assert len(monitor.hard.ids) == 20
    batch = torch.utils.data.default_collate([Windows()[int(i)] for i in monitor.hard.ids])
    with torch.no_grad():
        by_hand = torch.nn.functional.cross_entropy(
            watched(batch["input_ids"]).view(-1, VOCAB), batch["labels"].view(-1)
        )
    trainer = make_trainer(tmp_path)
    assert monitor.hard.mean_loss(trainer, watched, Windows()) == pytest.approx(float(by_hand), rel=1e-5)


def test_hard_windows_come_back_from_a_checkpoint(tmp_path):
    _, loader, callback = make_parts()
    first = SamplingMonitor(every_n_steps=1, hard_windows=16)
    with pytest.raises(Killed):
        make_trainer(tmp_path, callback, first, StopWithCheckpoint(9, tmp_path / "a.ckpt")).fit(Forward(), loader)
    _, loader, callback = make_parts()
    second = SamplingMonitor(every_n_steps=1, hard_windows=16)
    make_trainer(tmp_path, callback, second).fit(Forward(), loader, ckpt_path=tmp_path / "a.ckpt")
    np.testing.assert_array_equal(first.hard.ids, second.hard.ids)
    assert len(first.hard.ids) == 16


def test_own_losses_of_hard_windows_and_a_failing_one(tmp_path):
    logger = Noting()
    own = SamplingMonitor(every_n_steps=5, hard_losses=lambda module, batch: batch["window_id"].float())
    fit(tmp_path, [logger], monitor=own)
    assert logger.sent[-1][1]["sampling/hard_windows_loss"] == own.hard.ids.mean()
    failing = SamplingMonitor(every_n_steps=5, hard_losses=lambda module, batch: batch["nothing"])
    with pytest.warns(UserWarning, match="hard windows cannot be evaluated: KeyError"):
        fit(tmp_path, [], monitor=failing)


def test_csv_has_the_same_columns_from_the_first_row_and_a_picture(tmp_path):
    logger = CSVLogger(tmp_path, name="csv", version=0, flush_logs_every_n_steps=1)
    fit(tmp_path, [logger], every=1)
    logger.save()
    rows = list(csv.DictReader((tmp_path / "csv" / "version_0" / "metrics.csv").read_text().splitlines()))
    assert sorted({generic(k) for k in rows[0] if k.startswith("sampling/")}) == KEYS["scalars"]
    assert [int(row["step"]) for row in rows] == list(range(1, 25))
    assert all(row["sampling/share_seen"] for row in rows)
    picture = (tmp_path / "csv" / "version_0" / "sampling" / "weights.svg").read_text()
    assert "sampling/weights, step 24" in picture
    assert f"(n = {NUM_WINDOWS}" in picture


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_wandb_offline_keeps_numbers_and_histograms(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandbLogger(save_dir=tmp_path, offline=True)
    fit(tmp_path, [logger], accumulate_grad_batches=2, every=3)
    logger.experiment.finish()
    (file,) = Path(tmp_path).rglob("run-*.wandb")
    content = file.read_bytes()
    for key in (b"sampling/share_seen", b"sampling/weights", b"histogram"):
        assert key in content


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_mlflow_file_store_keeps_numbers_and_pictures(tmp_path):
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    logger = MLFlowLogger(tracking_uri=f"file:{tmp_path}/mlruns")
    fit(tmp_path, [logger])
    run = logger.experiment.get_run(logger.run_id)
    assert run.data.metrics["sampling/share_seen"] == 1.0
    assert [m.step for m in logger.experiment.get_metric_history(logger.run_id, "sampling/top_weight")] == [
        1,
        5,
        10,
        15,
        20,
    ]
    assert len(list(Path(tmp_path).rglob("00000020.svg"))) == 2


def test_several_loggers_at_once_and_one_that_is_unknown(tmp_path):
    noting = Noting()
    loggers = [CSVLogger(tmp_path, name="csv"), TensorBoardLogger(tmp_path, name="tb"), noting]
    fit(tmp_path, loggers)
    assert [step for step, metrics in noting.sent if "sampling/top_weight" in metrics] == [1, 5, 10, 15, 20]


def test_steps_never_fall_under_accumulation(tmp_path):
    logger = Noting()
    fit(tmp_path, [logger], accumulate_grad_batches=4, every=2, max_epochs=4)
    assert [step for step, metrics in logger.sent if "sampling/top_weight" in metrics] == [1, 2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize(
    "weights",
    [[1.0], [0.0, 0.0, 1.0], [1e-38, 1e-38], [3e38, 1e-38, 1.0], [5.0] * 7, [1e9] + [1.0] * 1000],
    ids=["one", "zeros", "tiny", "huge", "equal", "outlier"],
)
def test_any_weights_make_numbers_and_a_histogram(weights):
    from adaptive_sampling.callbacks.monitor import relative_weights, weight_summary

    array = np.array(weights, np.float32)
    assert all(np.isfinite(v) for v in weight_summary(array, float(array.max())).values())
    assert Histogram.of(relative_weights(array)).counts.sum() == len(array)


@pytest.mark.parametrize(
    ("values", "num"),
    [
        ([], 0),
        ([np.nan] * 3, 0),
        ([np.inf, -np.inf], 0),
        ([1.0, np.nan, np.inf], 1),
        ([2.0] * 5, 5),
        ([1e300, -1e300], 2),
    ],
)
def test_a_histogram_counts_what_is_finite(values, num):
    histogram = Histogram.of(np.array(values))
    if num == 0:
        assert histogram is None
        return
    assert histogram.counts.sum() == num
    assert (np.diff(histogram.edges) > 0).all()
    assert len(histogram.counts) == 64
    assert histogram.picture("x").startswith("<svg")
    assert all(np.isfinite(v) for k, v in histogram.raw().items() if not isinstance(v, list))


def test_losses_that_are_not_finite_are_counted_and_nothing_stops(tmp_path):
    class Exploding(Forward):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            return {"loss": loss, "per_sample_loss": torch.full((4,), float("nan"))}

    logger = Noting()
    with pytest.warns(UserWarning, match="were not finite"):
        fit(tmp_path, [logger], module=Exploding())
    assert logger.sent[-1][1]["sampling/losses_not_finite"] == 80
    assert "sampling/mean_loss/web" not in logger.sent[-1][1]


def test_looks_at_many_windows_are_rationed(tmp_path, monkeypatch):
    from adaptive_sampling.callbacks import monitor as module

    monkeypatch.setattr(module, "_ALWAYS", 1)
    monkeypatch.setattr(module, "_TIME_SHARE", 1e-9)
    logger = TensorBoardLogger(tmp_path, name="tb", version=0)
    fit(tmp_path, [logger], every=1)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tb" / "version_0"), size_guidance={"histograms": 0, "scalars": 0})
    events.Reload()
    assert [e.step for e in events.Histograms("sampling/weights")] == [1]
    assert len(events.Scalars("sampling/top_weight")) == 24


def test_of_very_many_windows_some_are_looked_at_and_the_top_weight_is_that_of_all(tmp_path, monkeypatch):
    from adaptive_sampling.callbacks import monitor as module

    monkeypatch.setattr(module, "_MOST_LOOKED_AT", NUM_WINDOWS // 4)
    logger = Noting()
    monitor, callback, _ = fit(tmp_path, [logger], every=1, monitor=SamplingMonitor(every_n_steps=1, hard_windows=3))
    weights = callback.sampler.weights
    some = weights[::4].astype(np.float64)
    last = logger.sent[-1][1]
    assert last["sampling/effective_sample_size"] == pytest.approx(some.mean() ** 2 / np.square(some).mean())
    assert last["sampling/top_weight"] == pytest.approx(weights.max() / some.mean())
    assert last["sampling/share_at_floor"] == np.mean(callback.policy.weights[::4] <= callback.policy.limits[0])
    assert set(monitor.hard.ids % 4) == {0}
    assert len(monitor.hard.ids) == 3


def test_slow_passes_over_the_hard_windows_are_rationed(tmp_path, monkeypatch):
    from adaptive_sampling.callbacks import monitor as module

    def calls(quick):
        monkeypatch.setattr(module, "_QUICK", quick)
        batches = []
        watching = SamplingMonitor(every_n_steps=1, hard_losses=lambda _, batch: batches.append(1) or torch.ones(1))
        logger = Noting()
        fit(tmp_path, [logger], monitor=watching)
        assert logger.sent[-1][1]["sampling/hard_windows_loss"] == 1
        return len(batches)

    rare, often = calls(0.0), calls(60.0)
    assert rare == NUM_WINDOWS // 16
    assert often > rare


@pytest.mark.parametrize("bad", [-1, 2.5, True])
def test_a_bad_number_of_hard_windows_is_refused(bad):
    with pytest.raises((ValueError, TypeError), match="`hard_windows`"):
        SamplingMonitor(hard_windows=bad)


@pytest.mark.parametrize(
    "bad", [{"sampler": 3}, {"hard_losses": 3}, {"prefix": ""}, {"prefix": None}, {"every_n_steps": True}], ids=str
)
def test_bad_arguments_are_refused_at_once(bad):
    with pytest.raises((ValueError, TypeError), match=f"`{next(iter(bad))}` must be"):
        SamplingMonitor(**bad)


@pytest.mark.filterwarnings("ignore:WeightedRandomSampler draws a whole epoch at once")
def test_a_torch_sampler_may_be_given(tmp_path):
    sampler = torch.utils.data.WeightedRandomSampler(torch.ones(NUM_WINDOWS), NUM_WINDOWS)
    loader = DataLoader(Windows(), batch_size=8, sampler=sampler)
    logger = Noting()
    monitor = SamplingMonitor(sampler, every_n_steps=np.int64(2))
    callbacks = AdaptiveSampling(sampler, update_every=2), monitor
    make_trainer(tmp_path, *callbacks, logger=[logger], max_epochs=1).fit(Bigram(), loader)
    assert logger.sent[-1][1]["sampling/effective_sample_size"] <= 1
    assert not monitor._warned


def test_a_sampler_that_no_loader_draws_with_is_warned_of(tmp_path):
    sampler, loader, callback = make_parts()
    for monitor, watched in (
        (SamplingMonitor(ads.AdaptiveSampler(NUM_WINDOWS)), False),
        (SamplingMonitor(sampler), True),
    ):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            make_trainer(tmp_path, callback, monitor, max_epochs=1).fit(Bigram(), loader)
        found = [str(w.message) for w in said if "SamplingMonitor" in str(w.message)]
        assert bool(found) != watched
        assert watched or found[0].startswith("SamplingMonitor watches a sampler that no train loader draws with")


class TwoLoaders(Forward):
    def training_step(self, batch, batch_idx):
        outputs = {}
        for key, part in batch.items():
            logits = self.table(part["input_ids"]).transpose(1, 2)
            outputs[key] = torch.nn.functional.cross_entropy(logits, part["labels"], reduction="none").mean(1)
        return {"loss": sum(losses.mean() for losses in outputs.values()), **outputs}


def test_monitors_and_refreshes_of_two_samplers_keep_apart(tmp_path):
    logger, callbacks, loaders = Noting(), [], {}
    for key in "ab":
        sampler, loaders[key], _ = make_parts()
        callbacks += [
            AdaptiveSampling(sampler, update_every=2, loader_key=key, loss_key=key),
            SamplingMonitor(sampler, every_n_steps=2, hard_windows=0, prefix=f"sampling-{key}"),
            ScarcityRefresh("table", every_n_steps=4, loader_key=key),
        ]
    trainer = make_trainer(tmp_path, *callbacks, logger=[logger], max_epochs=1)
    trainer.fit(TwoLoaders(), loaders)
    for key in "ab":
        assert any(f"sampling-{key}/top_weight" in numbers for _, numbers in logger.sent)
    assert not any(name.startswith("sampling/") for _, numbers in logger.sent for name in numbers)
    trainer.save_checkpoint(tmp_path / "both.ckpt")
    states = torch.load(tmp_path / "both.ckpt", weights_only=True)["callbacks"]
    assert sum("SamplingMonitor" in key for key in states) == 2
    assert [callback.num_refreshes for callback in callbacks[2::3]] == [3, 3]
    assert SamplingMonitor().state_key == "SamplingMonitor"
