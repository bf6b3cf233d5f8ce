import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from adaptive_sampling.errors import StateMismatchError
from adaptive_sampling.weights import ExcessLossSignal, reference, reference_losses

VOCAB, LENGTH, N = 7, 5, 23


class Bigram(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(torch.randn(VOCAB, VOCAB, generator=generator))
        self.dropout = nn.Dropout(0.5)
        self.calls = 0

    def forward(self, ids):
        self.calls += 1
        return self.dropout(self.table[ids])


class Windows:
    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.tokens = torch.from_numpy(rng.integers(0, VOCAB, (N, LENGTH + 1)))
        self.read = []

    def __len__(self):
        return N

    def __getitem__(self, index):
        self.read.append(index)
        labels = self.tokens[index, 1:].clone()
        labels[: index % (LENGTH + 1)] = -100
        return {"input_ids": self.tokens[index, :-1], "labels": labels, "window_id": index}


def by_hand(module, windows):
    module.eval()
    losses = []
    for i in range(N):
        item = windows[i]
        valid = item["labels"] != -100
        rows = F.cross_entropy(module(item["input_ids"]), item["labels"], reduction="none")
        losses.append(rows[valid].mean().item() if valid.any() else 0.0)
    return losses


def test_losses_are_those_of_the_module_in_evaluation_mode_and_computed_once(tmp_path):
    module, windows = Bigram(), Windows()
    seen = []
    told = reference_losses(module, windows, tmp_path / "r.npy", batch_size=4, progress=lambda *args: seen.append(args))
    assert module.training
    assert seen[0] == ("reference losses", 4, N)
    assert seen[-1] == ("reference losses", N, N)
    np.testing.assert_allclose(told, by_hand(Bigram(), windows), rtol=1e-5)
    calls = module.calls
    np.testing.assert_array_equal(reference_losses(module, windows, tmp_path / "r.npy"), told)
    assert module.calls == calls
    assert [path.name for path in tmp_path.iterdir()] == ["r.npy"]
    ExcessLossSignal(told).bind(N, None)


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    class Stopped(Exception):
        pass

    def stop(what, done, total):
        if done >= 12:
            raise Stopped

    windows = Windows()
    with pytest.raises(Stopped):
        reference_losses(Bigram(), windows, tmp_path / "r.npy", batch_size=4, progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["r.partial.npy"]
    windows.read.clear()
    told = reference_losses(Bigram(), windows, tmp_path / "r.npy", batch_size=5)
    assert windows.read == list(range(4, N))  # the last eight done are computed again
    np.testing.assert_allclose(told, by_hand(Bigram(), windows), rtol=1e-5)
    with pytest.raises(Stopped):
        reference_losses(Bigram(), windows, tmp_path / "s.npy", batch_size=4, progress=stop)
    for other in ((Bigram(1), windows), (Bigram(), Windows(1))):
        with pytest.raises(StateMismatchError, match=r"s\.partial\.npy says .* for window 4,.*delete it"):
            reference_losses(*other, tmp_path / "s.npy")


def test_what_is_done_is_saved_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(reference, "_SAVE_SECONDS", -1.0)
    sizes = []

    def look(what, done, total):
        partial = tmp_path / "r.partial.npy"
        sizes.append(len(np.load(partial)) if partial.exists() else 0)

    reference_losses(Bigram(), Windows(), tmp_path / "r.npy", batch_size=10, progress=look)
    assert sizes == [0, 10, 20]


def test_files_and_losses_that_do_not_fit_are_refused(tmp_path):
    windows = Windows()
    np.save(tmp_path / "r.npy", np.ones(9, np.float32))
    with pytest.raises(StateMismatchError, match=r"must hold 23 float32 losses, got float32 \(9,\)"):
        reference_losses(Bigram(), windows, tmp_path / "r.npy")
    with pytest.raises(ValueError, match=r"`path` must end with \.npy, got 'r\.pt'"):
        reference_losses(Bigram(), windows, "r.pt")
    with pytest.raises(ValueError, match=r"one value per window, shape \(8,\), got \(\)"):
        reference_losses(Bigram(), windows, tmp_path / "s.npy", batch_size=8, losses=lambda m, b: torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"must be finite, got nan for window 3"):
        reference_losses(
            Bigram(),
            windows,
            tmp_path / "s.npy",
            losses=lambda m, b: torch.where(b["window_id"] == 3, torch.nan, torch.ones(len(b["window_id"]))),
        )
