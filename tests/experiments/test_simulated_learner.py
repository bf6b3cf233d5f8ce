from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from experiments import signal_shares
from experiments.signal_shares import ARMS
from experiments.simulated_learner import KINDS, SimulatedLearner, share_of_each_kind

NAMES = [kind.name for kind in KINDS]
ROOT = Path(__file__).parents[2]


def shares(arm, passes, num_windows):
    return dict(zip(NAMES, share_of_each_kind(ARMS[arm], passes, num_windows), strict=True))


def assert_properties(told):
    assert told["noise"] <= 1.0
    assert told["rare"] >= 1.5
    assert told["learnable"] >= 1.5
    assert told["copied"] <= 0.5


@pytest.mark.parametrize("passes", [1.0, 3.0])
def test_the_default_prefers_what_is_rare_and_learnable_and_neither_noise_nor_copies(passes):
    assert_properties(shares("loss (the default)", passes, 6000 if passes == 1 else 2000))


@pytest.mark.soak
@pytest.mark.parametrize("passes", [1.0, 4.0])
def test_the_default_does_so_with_more_windows(passes):
    assert_properties(shares("loss (the default)", passes, 40_000))


def test_the_loss_alone_prefers_noise():
    assert shares("loss without gate", 1.0, 2000)["noise"] > 1.5


@pytest.mark.parametrize(("arm", "num_windows"), [("progress", 6000), ("excess", 2000), ("curriculum", 2000)])
def test_signals_that_know_better_than_the_loss_leave_noise_alone(arm, num_windows):
    assert shares(arm, 1.0, num_windows)["noise"] <= 1.0


def test_the_learner_is_what_it_says():
    learner = SimulatedLearner(3000)
    counts = np.bincount(learner.kind) / 3000
    np.testing.assert_allclose(counts, [kind.share for kind in KINDS], atol=0.01)
    ids = np.arange(3000)
    starts = np.array([kind.start for kind in KINDS])
    np.testing.assert_allclose(learner.losses(ids), starts[learner.kind] * learner.factor)
    learner.practice[:] = 1e9
    np.testing.assert_allclose(learner.losses(ids), learner.final_losses())
    assert all(len(set(learner.kind[learner.cluster == c])) == 1 for c in range(sum(kind.sets for kind in KINDS)))


def test_picture_is_xml_and_table_and_docs_name_every_arm(monkeypatch):
    rows = {(name, passes): np.ones(len(KINDS)) for name in ARMS for passes in signal_shares.PASSES}
    root = ElementTree.fromstring(signal_shares.picture(rows))
    assert len(root.findall(".//{*}circle")) == len(KINDS) * (len(rows) + 1)
    lines = signal_shares.table(rows).splitlines()
    assert len(lines) == len(rows) + 2
    documented = (ROOT / "docs" / "weights.md").read_text(encoding="utf-8")
    for line in lines[2:]:
        assert line[: line.index("1.00")] in documented
