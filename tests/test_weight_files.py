import numpy as np
import pytest
import torch

from adaptive_sampling import TokenStore, WeightPolicy, WindowConfig, WindowDataset, cli
from adaptive_sampling.weight_files import describe_extremes, read_weights


@pytest.fixture
def store(tmp_path):
    rng = np.random.default_rng(0)
    return TokenStore.write(
        tmp_path / "store", [rng.integers(1, 50, 40) for _ in range(6)], vocab_size=50, eos_id=0, sources=[*"aabbcc"]
    )


@pytest.fixture
def dataset(store):
    return WindowDataset(store, WindowConfig(seq_len=8, pack="concat"))


def policy_for(dataset):
    policy = WeightPolicy(warmup=0, cooldown=0)
    policy.bind(len(dataset))
    policy.update(np.arange(len(dataset)), 1.0 + np.arange(len(dataset)))
    return policy


def test_weights_are_read_from_arrays_states_and_checkpoints(tmp_path, dataset):
    policy = policy_for(dataset)
    np.save(tmp_path / "w.npy", policy.weights)
    torch.save(policy.state_dict(), tmp_path / "w.pt")
    torch.save({"callbacks": {"AdaptiveSampling{}": {"policy": policy.state_dict()}}, "epoch": 3}, tmp_path / "w.ckpt")
    for name in ("w.npy", "w.pt", "w.ckpt"):
        np.testing.assert_array_equal(read_weights(tmp_path / name, len(dataset)), policy.weights)


def test_files_without_fitting_weights_are_refused(tmp_path, dataset):
    np.save(tmp_path / "w.npy", np.ones(3))
    with pytest.raises(ValueError, match=rf"one weight per window \({len(dataset)}\), got float64 \(3,\)"):
        read_weights(tmp_path / "w.npy", len(dataset))
    torch.save({"state_dict": {}}, tmp_path / "w.ckpt")
    with pytest.raises(ValueError, match="weights of one policy, got 0"):
        read_weights(tmp_path / "w.ckpt", 3)
    (tmp_path / "w.txt").write_text("no checkpoint")
    with pytest.raises(ValueError, match="a checkpoint, got"):
        read_weights(tmp_path / "w.txt", 3)


def test_extremes_are_shown_with_their_tokens(dataset):
    weights = np.arange(len(dataset), dtype=float)
    lines = describe_extremes(dataset, weights, None, count=2).splitlines()
    assert [lines[0], lines[3]] == ["largest weights:", "smallest weights:"]
    top = len(dataset) - 1
    assert lines[1].split()[:3] == [f"{top:.3f}", "window", f"{top},"]
    assert lines[1].endswith(" ".join(map(str, dataset[top]["input_ids"].tolist())))
    assert lines[5].split()[:3] == ["0.000", "window", "0,"]
    assert describe_extremes(dataset, weights, None, count=len(dataset)).count("\n") == len(dataset)


def test_inspect_prints_top_and_bottom_windows_with_their_text(tmp_path, capsys):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number:02}.txt").write_text(f"text {number} of {number**3} words and words. " * 3)
    out = tmp_path / "out"
    arguments = ["prepare", "--source", f"a={folder}/*.txt", "--vocab-size", "280", "--out", str(out)]
    assert cli.main(arguments) == 0
    dataset = WindowDataset(TokenStore.open(out / "train"), WindowConfig(seq_len=16, pack="concat"))
    np.save(tmp_path / "w.npy", policy_for(dataset).weights)
    capsys.readouterr()
    window = ["--seq-len", "16", "--pack", "concat", "--weights", str(tmp_path / "w.npy")]
    for path in (out, out / "train"):
        assert cli.main(["inspect", str(path), *window]) == 0
        shown = capsys.readouterr().out
        assert shown.count("weights:") == 2
        assert shown.count("words") >= 5
    assert cli.main(["inspect", str(out), "--weights", "w.npy"]) == 2
    assert "`--weights` must come with --seq-len, got 'w.npy' alone" in capsys.readouterr().err
    assert cli.main(["inspect", str(out), *window[:-1], str(tmp_path / "none.npy")]) == 2
    assert "none.npy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("weights", "shown"),
    [(lambda n: -np.ones(n), "got -1.0 for window 0"), (lambda n: np.zeros(n), "a positive weight")],
)
def test_what_no_sampler_would_take_is_not_shown_as_weights(tmp_path, dataset, weights, shown):
    np.save(tmp_path / "w.npy", weights(len(dataset)))
    with pytest.raises(ValueError, match=shown):
        read_weights(tmp_path / "w.npy", len(dataset))


def test_a_file_that_is_no_array_is_no_advice_to_load_it_unsafely(tmp_path, dataset):
    (tmp_path / "w.npy").write_text("weights")
    with pytest.raises(ValueError, match="got a file of another kind") as error:
        read_weights(tmp_path / "w.npy", len(dataset))
    assert "pickle" not in str(error.value)
