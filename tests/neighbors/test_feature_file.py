import numpy as np
import pytest

from adaptive_sampling.neighbors import feature_file as module
from adaptive_sampling.neighbors import hashed_features, open_features
from adaptive_sampling.neighbors.feature_file import fill_features


def computing(rows, calls=None, fail_at=None):
    def compute(first, last):
        if fail_at is not None and first >= fail_at:
            raise KeyboardInterrupt
        if calls is not None:
            calls.append((first, last))
        return rows[first:last]

    return compute


@pytest.fixture
def rows():
    return np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)


def fill(compute, out, **more):
    return fill_features(compute, 50, 3, batch_size=8, settings={"kind": "test"} | more, out=out)


def test_features_are_the_same_in_memory_and_on_disk_and_progress_is_told(rows, tmp_path):
    told = []
    out = tmp_path / "features.npy"
    written = fill_features(
        computing(rows), 50, 3, batch_size=8, settings={}, out=out, progress=lambda *x: told.append(x)
    )
    np.testing.assert_array_equal(written, rows)
    np.testing.assert_array_equal(fill(computing(rows), None), rows)
    assert isinstance(written, np.memmap)
    assert not written.flags.writeable
    assert told == [("features", done, 50) for done in (8, 16, 24, 32, 40, 48, 50)]
    assert [path.name for path in tmp_path.iterdir()] == ["features.npy"]
    np.testing.assert_array_equal(open_features(out), rows)


def test_an_interrupted_file_goes_on_where_it_was(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_MARKS", -1.0)
    out = tmp_path / "features.npy"
    with pytest.raises(KeyboardInterrupt):
        fill(computing(rows, fail_at=24), out)
    assert not out.exists()
    calls = []
    np.testing.assert_array_equal(fill(computing(rows, calls), out), rows)
    assert calls == [(0, 8), (24, 32), (32, 40), (40, 48), (48, 50)]  # the first batch shows that the data are the same


@pytest.mark.parametrize("other", ["settings", "data", "note"])
def test_an_interrupted_file_of_something_else_is_started_over(rows, tmp_path, monkeypatch, other):
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_MARKS", -1.0)
    out = tmp_path / "features.npy"
    with pytest.raises(KeyboardInterrupt):
        fill(computing(rows, fail_at=24), out)
    if other == "note":
        (tmp_path / "features.npy.part.json").write_text("{")
        np.testing.assert_array_equal(fill(computing(rows), out), rows)
    else:
        now = rows if other == "settings" else rows + 1
        with pytest.warns(UserWarning, match="computed from the start"):
            written = fill(computing(now), out, **({"seed": 1} if other == "settings" else {}))
        np.testing.assert_array_equal(written, now)


def test_files_that_are_there_or_of_another_kind_are_refused(rows, tmp_path):
    out = tmp_path / "features.npy"
    fill(computing(rows), out)
    with pytest.raises(FileExistsError, match=r"`out` must be a new file"):
        fill(computing(rows), out)
    with pytest.raises(ValueError, match=r"`out` must end with .npy, got 'x.bin'"):
        fill(computing(rows), "x.bin")
    np.save(tmp_path / "other.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"must hold float32 \[rows, dim\], got float64 \(3,\)"):
        open_features(tmp_path / "other.npy")


def test_hashed_features_go_to_a_file(tmp_path):
    class Rows:
        tokens = np.random.default_rng(1).integers(0, 99, (40, 16))

        def __len__(self):
            return 40

        def read(self, ids):
            return {"input_ids": self.tokens[ids], "labels": self.tokens[ids]}

    written = hashed_features(Rows(), out=tmp_path / "hashed.npy")
    np.testing.assert_array_equal(written, hashed_features(Rows()))
