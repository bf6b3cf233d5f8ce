"""The same runs on a local Ray of two workers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tiny_training import Bigram, tiny_data

from adaptive_sampling.ab import Arm, run_ab
from adaptive_sampling.weights import WeightPolicy

pytestmark = [
    pytest.mark.filterwarnings("ignore:no learned weight can count"),
    # Ray's own threads, sockets and notices.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
ARMS = (Arm("uniform"), Arm("adaptive", WeightPolicy, update_every=3))


@pytest.mark.soak
def test_two_ray_workers_give_the_runs_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'lightning-adaptive-sampling[ray]'")
    # Workers start in their own folders: they find these modules by the path that they inherit.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    settings = {"max_steps": 12, "seeds": (0,), "progress": lambda line: None}
    run_ab(ARMS, Bigram, tiny_data, out_dir=tmp_path / "ray", backend="ray", jobs=2, **settings)
    run_ab(ARMS, Bigram, tiny_data, out_dir=tmp_path / "here", **settings)
    results = [(tmp_path / name / "results.json").read_bytes() for name in ("ray", "here")]
    assert results[0] == results[1]


def test_missing_ray_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"`ray` must be installed.*\[ray\]"):
        run_ab(ARMS[:1], Bigram, tiny_data, out_dir=tmp_path, backend="ray", max_steps=4, progress=lambda line: None)
