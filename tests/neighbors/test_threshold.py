import numpy as np
import pytest

from adaptive_sampling.neighbors import read_threshold


def around(rng, centre, spread, count):
    return np.minimum(rng.normal(centre, spread, count), 1)


def test_a_gap_between_copies_and_the_rest_is_found():
    rng = np.random.default_rng(0)
    rest, copies = around(rng, 0.55, 0.06, 5000), around(rng, 0.87, 0.02, 5000)
    found = read_threshold(np.concatenate([rest, copies]))
    assert found.estimated
    assert (rest >= found.threshold).mean() < 0.01
    assert (copies >= found.threshold).mean() > 0.99


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_without_need_the_threshold_stays_at_what_is_known_to_be_good(share):
    rng = np.random.default_rng(1)
    copies = around(rng, 0.95, 0.015, round(10_000 * share))
    found = read_threshold(np.concatenate([around(rng, 0.55, 0.06, 10_000 - len(copies)), copies]))
    assert abs(found.threshold - 0.85) < 0.05


def test_features_that_call_everything_similar_do_not_make_everything_a_copy():
    rng = np.random.default_rng(2)
    rest, copies = around(rng, 0.84, 0.03, 5000), around(rng, 0.985, 0.004, 2000)
    found = read_threshold(np.concatenate([rest, copies]))
    assert (rest >= found.threshold).mean() < 0.01
    assert (copies >= found.threshold).mean() > 0.99


def test_the_histogram_counts_every_row_that_has_a_neighbour():
    found = read_threshold([0.5, 1.0000001, -0.2, -np.inf, 0.85])
    assert found.counts.sum() == 4
    assert found.without == 1
    assert found.counts[0] == found.counts[-1] == 1
    assert len(found.edges) == len(found.counts) + 1
    assert found.counts[np.searchsorted(found.edges, 0.5, side="right") - 1] == 1
    assert (found.threshold, found.estimated) == (0.85, False)


def test_few_rows_do_not_move_the_threshold_and_a_given_one_stands():
    copies = np.full(199, 0.85)
    assert read_threshold(copies).threshold == 0.85
    assert read_threshold(np.append(copies, 0.85)).threshold != 0.85
    given = read_threshold(np.full(1000, 0.85), 0.9)
    assert (given.threshold, given.estimated) == (0.9, False)
    assert read_threshold(np.empty(0)).threshold == 0.85
