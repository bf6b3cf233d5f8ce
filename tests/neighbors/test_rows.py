import numpy as np
import pytest

from adaptive_sampling.neighbors.rows import Rows, common_part


def test_rows_are_centred_and_scaled_the_same_kept_or_not():
    source = np.asfortranarray(np.random.default_rng(0).standard_normal((500, 7)) + 1e4)
    centre = source.mean(0)
    expected = source - centre
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    for keep in (True, False):
        rows = Rows("features", source, centre=centre, keep=keep)
        np.testing.assert_allclose(rows.all(), expected, atol=1e-7)
        np.testing.assert_array_equal(rows.take(np.array([4, 400, 4])), rows.all()[[4, 400, 4]])
        np.testing.assert_array_equal(rows.take(slice(3, 9)), rows.all()[3:9])
        assert rows.all().dtype == np.float32


def test_rows_of_zeros_stay_zeros():
    assert not Rows("features", np.zeros((3, 4))).all().any()
    assert not Rows("features", np.ones((3, 4)), centre=np.ones(4)).all().any()


def test_rows_that_are_not_finite_are_named_over_all_blocks():
    source = np.zeros((70_000, 128), np.float32)
    source[[5, 66_000], 3] = np.nan
    source[7, 0] = np.inf
    with pytest.raises(ValueError, match=r"`features` must be finite.*3 rows, first \[5, 7, 66000\]"):
        Rows("features", source, keep=False)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_the_common_part_is_that_of_different_rows_however_often_one_is_copied(share):
    rng = np.random.default_rng(1)
    common = 5 * rng.standard_normal(32)
    rows = rng.standard_normal((3000, 32))
    copies = round(3000 * share)
    rows[:copies] = rows[0] + 0.05 * rng.standard_normal((copies, 32))
    # Standard error of each column: 1/√(different rows looked at), 2,048 of 3,000.
    error = 1 / np.sqrt(2048 * (1 - share))
    found = common_part(rows + common)
    assert np.abs(found - common).max() < 5 * error
    np.testing.assert_allclose(common_part(rows + common + 1e4) - 1e4, found, atol=1e-6)


def test_the_common_part_of_few_or_equal_rows_is_defined():
    assert common_part(np.empty((0, 3))).tolist() == [0, 0, 0]
    np.testing.assert_allclose(common_part(np.full((9, 2), 3.0)), [3, 3])
    np.testing.assert_allclose(common_part(np.eye(3)[[0, 1, 2, 2, 2]]), [1 / 3] * 3)
    assert common_part(np.array([[1.0, 2.0], [np.nan, 0.0]])).tolist() == [1, 2]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e160, 1e300, np.finfo(np.float64).max])
def test_rows_too_large_for_their_squares_are_not_called_infinite(size):
    source = np.random.default_rng(0).choice([-size, size], (40, 4))
    with pytest.raises(ValueError, match=r"told apart, got values up to .* in 40 rows, first \[0, 1.* Divide all"):
        Rows("features", source, centre=common_part(source))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e20, 1e-30])
def test_rows_whose_distances_float32_cannot_hold_are_refused_where_distances_are_asked_for(size):
    source = size * np.random.default_rng(0).standard_normal((40, 4))
    with pytest.raises(ValueError, match=r"told apart, got values up to [1-9.]+e.* in 40 rows"):
        Rows("features", source, unit=False)
    assert np.isfinite(Rows("features", source).all()).all()


def test_rows_of_zeros_are_no_rows_that_are_too_small():
    assert not Rows("features", np.zeros((3, 2)), unit=False).all().any()
