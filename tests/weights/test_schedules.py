import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.weights import Constant, Cosine, Linear, Piecewise
from adaptive_sampling.weights.schedules import as_schedule, step_of


@pytest.mark.parametrize("kind", [Linear, Cosine])
@pytest.mark.parametrize(("begin", "end", "total"), [(10, 20, None), (0.1, 0.2, 100), (10, 0.2, 100), (0.1, 20, 100)])
def test_ramps_begin_and_end_exactly_where_they_say(kind, begin, end, total):
    schedule = kind(2.0, 5.0, begin=begin, end=end)
    assert [schedule.at(step, total) for step in (0, 9, 10)] == [2.0] * 3
    assert [schedule.at(step, total) for step in (20, 21, 10**6)] == [5.0] * 3
    assert schedule.at(15, total) == pytest.approx(3.5)
    between = [schedule.at(step, total) for step in range(10, 21)]
    assert between == sorted(between)
    assert between[1] > 2.0
    assert between[-2] < 5.0
    expected = 2 + 3 * ((1 - math.cos(math.pi * 0.3)) / 2 if kind is Cosine else 0.3)
    assert schedule.at(13, total) == pytest.approx(expected)


@given(st.integers(0, 10**7), st.integers(1, 10**7))
def test_a_fraction_is_rounded_to_the_nearest_step(step, total):
    assert step_of(0.25, total) == round(0.25 * total)
    assert Linear(0.0, 1.0).at(total, total) == 1.0
    assert 0 <= Cosine(0.0, 1.0).at(min(step, total), total) <= 1


def test_piecewise_holds_each_value_from_its_position_on():
    schedule = Piecewise(((0, 1.0), (10, 2.0), (0.5, 0.0)))
    assert [schedule.at(step, 100) for step in (0, 9, 10, 49, 50, 100)] == [1, 1, 2, 2, 0, 0]
    assert schedule.needs_length
    assert not Piecewise(((0, 1.0), (10, 2.0))).needs_length


def test_a_number_is_constant():
    assert as_schedule(3) == Constant(3.0)
    assert as_schedule(Constant(2.0)).at(5, None) == 2.0
    assert as_schedule(True) is True
    assert Constant(2.5).as_primitives() == 2.5
    assert Linear(1.0, 2.0).as_primitives() == {"kind": "Linear", "values": [1.0, 2.0], "positions": [0.0, 1.0]}


def test_a_fraction_of_an_unknown_length_is_refused():
    with pytest.raises(ValueError, match=r"got 0\.5.*policy\.bind"):
        step_of(0.5, None)
    assert step_of(0.0, None) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Linear(math.nan, 1.0), "`start` must be a finite number, got nan"),
        (lambda: Cosine(0.0, True), "`stop` must be a finite number, got True"),
        (lambda: Linear(0.0, 1.0, begin=-1), "`begin` must be a fraction of training"),
        (lambda: Linear(0.0, 1.0, end=1.5), r"`end` must be .*got 1\.5"),
        (lambda: Linear(0.0, 1.0, begin=0.5, end=0.5), r"`begin` must be before `end`, got 0\.5 and 0\.5"),
        (lambda: Piecewise(()), "`pieces` must begin with a value at position 0"),
        (lambda: Piecewise(((5, 1.0),)), "`pieces` must begin with a value at position 0"),
        (lambda: Piecewise(((0, 1.0), (9, 2.0), (8, 3.0))), "`pieces` must be in the order.*got 9 before 8"),
        (lambda: Piecewise(((0, math.inf),)), "`pieces` must be a finite number, got inf"),
        (lambda: Piecewise((0, 1.0)), "`pieces` must be pairs"),
    ],
)
def test_bad_schedules_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
