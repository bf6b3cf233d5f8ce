import numpy as np
import pytest

import adaptive_sampling as ads
from adaptive_sampling import cli
from adaptive_sampling.corpus import Document, prepare

WORDS = [
    "river",
    "stone",
    "light",
    "paper",
    "cloud",
    "table",
    "green",
    "winter",
    "open",
    "small",
    "under",
    "never",
    "after",
    "left",
    "house",
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    rng = np.random.default_rng(0)

    def text(number):
        return " ".join(rng.choice(WORDS, 60)) + f" {number} " + " ".join(map(str, rng.integers(0, 10**6, 40)))

    licence = text("licence")
    documents = [Document("notes", f"{k}", text(k)) for k in range(40)]
    documents += [Document("copies", f"licence {k}", f"{licence} copyright {k}") for k in range(20)]
    out = tmp_path_factory.mktemp("scarcity") / "corpus"
    prepare(iter(documents), out, vocab_size=300, validation_fraction=0.0)
    return out


def run(prepared, tmp_path, *arguments):
    return cli.main(["scarcity", str(prepared), "--out", str(tmp_path / "q.npy"), "--tail", "cover", *arguments])


@pytest.mark.filterwarnings("ignore:the validation split is empty")
@pytest.mark.parametrize("measure", ["density", "distance", "cluster"])
def test_scarcity_writes_an_array_and_a_page(prepared, tmp_path, capsys, measure):
    assert run(prepared, tmp_path, "--measure", measure) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "windows in" in printed.out
    store = ads.TokenStore.open(prepared / "train")
    dataset = ads.WindowDataset(store, ads.WindowConfig(128, tail="cover"))
    scarcity = np.load(tmp_path / "q.npy", allow_pickle=False)
    assert scarcity.dtype == np.float64
    assert scarcity.shape == (len(dataset),)
    assert scarcity.mean() == pytest.approx(1)
    copied = dataset.sources() == store.source_names.index("copies")
    assert scarcity[copied].mean() < scarcity[~copied].mean()
    if measure == "density":
        features = ads.hashed_features(dataset)
        np.testing.assert_array_equal(scarcity, ads.scarcity_scores(features, groups=dataset.documents()))
    page = (tmp_path / "q.html").read_text(encoding="utf-8")
    assert "near-copies" in page
    assert any(word in page for word in WORDS)  # text, not token ids


def test_scarcity_of_a_store_alone_and_with_features_of_ones_own(prepared, tmp_path, capsys):
    kept = tmp_path / "features.npy"
    assert run(prepared / "train", tmp_path, "--save-features", str(kept), "--report", str(tmp_path / "r.html")) == 0
    first = np.load(tmp_path / "q.npy")
    assert run(prepared, tmp_path, "--features", str(kept), "--seq-len", "128") == 0
    np.testing.assert_array_equal(np.load(tmp_path / "q.npy"), first)
    assert (tmp_path / "r.html").exists()
    capsys.readouterr()
    assert run(prepared, tmp_path, "--features", str(kept), "--seq-len", "64") == 2
    assert "`features` must hold one row per window" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threshold", "1.5"], "`threshold` must be in (0, 1], got 1.5"),
        (["--num-neighbors", "0"], "`num_neighbors` must be a positive integer, got 0"),
        (["--measure", "rarity"], "invalid choice: 'rarity'"),
        (["--features", "missing.npy"], "missing.npy"),
        (["--features", "a.npy", "--save-features", "b.npy"], "`save_features` must be left out"),
        (["--out", "q.txt"], "`out` must end with .npy, got 'q.txt'"),
        (["--seq-len", "100000", "--tail", "drop"], "at least one window, got none"),
    ],
)
def test_bad_arguments_are_one_line_and_write_nothing(prepared, tmp_path, capsys, arguments, message):
    assert run(prepared, tmp_path, *arguments) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert message in error[-1]
    assert error[-1].startswith("adaptive-sampling: error: ")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_store_is_named(tmp_path, capsys):
    assert cli.main(["scarcity", str(tmp_path / "none"), "--out", str(tmp_path / "q.npy")]) == 2
    assert "which has no metadata.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--out", "q.txt"], ["`out` must end with .npy", "'q.txt'"]),
        (["--features", "empty.npy"], ["empty.npy", "an empty or cut off file", "numpy.save"]),
        (["--features", "features.txt"], ["features.txt", "must be a .npy file"]),
        (["--features", "gone.npy"], ["gone.npy", "No such file"]),
        (["--save-features", "f.txt"], ["`save_features` must end with .npy"]),
        (["--save-features", "empty.npy"], ["`save_features` must be a new file", "empty.npy"]),
    ],
)
def test_scarcity_refuses_files_before_windows_are_planned(prepared, tmp_path, monkeypatch, capsys, arguments, parts):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.npy").touch()
    (tmp_path / "features.txt").write_text("1 2 3")
    # No window would be a warning, and an error of its own.
    assert cli.main(["scarcity", str(prepared), "--out", "q.npy", "--seq-len", "100000", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    for part in parts:
        assert part in error


def test_scarcity_makes_the_folders_of_its_files(prepared, tmp_path):
    more = ["--report", str(tmp_path / "pages" / "r.html"), "--save-features", str(tmp_path / "features" / "f.npy")]
    out = tmp_path / "new" / "q.npy"
    assert cli.main(["scarcity", str(prepared), "--out", str(out), "--tail", "cover", *more]) == 0
    assert out.exists()
    assert (tmp_path / "pages" / "r.html").exists()
    assert (tmp_path / "features" / "f.npy").exists()
