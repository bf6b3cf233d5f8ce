"""The examples run as they are and do what they say."""

from experiments.examples import fabric_loop, images


def test_hard_pictures_are_drawn_more_often(capsys):
    callback = images.main()
    weights = callback.sampler.weights
    assert weights[-32:].mean() > 1.5 * weights.mean()
    assert "times as often" in capsys.readouterr().out


def test_fabric_does_the_same_by_hand():
    weights = fabric_loop.main().weights
    assert weights[-32:].mean() > 1.5 * weights.mean()
