import dataclasses

import numpy as np
import pytest

from adaptive_sampling.windows import WindowConfig


def test_config_defaults_and_positions():
    assert WindowConfig(8).step == 8
    assert WindowConfig(8, 3).step == 3
    assert WindowConfig(np.int32(8)) == WindowConfig(8)
    assert type(WindowConfig(np.int32(8)).seq_len) is int
    with pytest.raises(TypeError):
        WindowConfig(8, 3, "cover")
    with pytest.raises(dataclasses.FrozenInstanceError):
        WindowConfig(8).seq_len = 9


@pytest.mark.parametrize("name", ["seq_len", "stride", "min_length", "seed"])
@pytest.mark.parametrize("value", [True, 1.0, "4", np.float64(4), 2**63])
def test_config_refuses_what_is_no_integer(name, value):
    with pytest.raises((TypeError, ValueError), match=f"`{name}` must be"):
        WindowConfig(**{"seq_len": 4, name: value})


@pytest.mark.parametrize(("name", "low"), [("seq_len", 1), ("stride", 1), ("min_length", 0)])
def test_config_refuses_integers_below_the_least(name, low):
    WindowConfig(**{"seq_len": 4, name: low})
    with pytest.raises(ValueError, match=f"`{name}` must be at least {low}, got {low - 1}"):
        WindowConfig(**{"seq_len": 4, name: low - 1})


@pytest.mark.parametrize(
    ("name", "value", "listed"),
    [
        ("tail", "keep", "'drop' or 'cover' or 'pad'"),
        ("pack", "first_fit", "'none' or 'concat' or 'best_fit'"),
        ("align", "sentence", "'none' or 'document' or 'paragraph'"),
        ("group_by", "", "None or the name of a manifest column"),
    ],
)
def test_config_lists_the_choices_that_are_accepted(name, value, listed):
    with pytest.raises(ValueError, match=f"`{name}` must be {listed}, got '{value}'"):
        WindowConfig(4, **{name: value})


@pytest.mark.parametrize("name", ["random_offset", "mask_repeated_targets"])
@pytest.mark.parametrize("value", [1, None, "yes"])
def test_config_refuses_what_is_no_bool(name, value):
    with pytest.raises(TypeError, match=f"`{name}` must be True or False, got {value!r}"):
        WindowConfig(4, **{name: value})


@pytest.mark.parametrize("value", [0, -0.5, 1.01, float("nan"), float("inf")])
def test_config_refuses_thinning_out_of_range(value):
    with pytest.raises(ValueError, match="`thinning` must be above 0"):
        WindowConfig(4, thinning=value)


@pytest.mark.parametrize("value", [True, "0.5", None])
def test_config_refuses_thinning_that_is_no_number(value):
    with pytest.raises(TypeError, match="`thinning` must be a number"):
        WindowConfig(4, thinning=value)
