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


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_config_refuses_dropout_out_of_range(value):
    with pytest.raises(ValueError, match="`eos_dropout` must be at least 0 and at most 1"):
        WindowConfig(4, pack="concat", eos_dropout=value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group_by": "folder"}, "`group_by` must be None unless pack='concat', got 'folder' with pack='none'"),
        ({"eos_dropout": 0.1}, "`eos_dropout` must be 0.0 unless pack='concat', got 0.1"),
        ({"reshuffle_documents": True, "pack": "best_fit"}, "`reshuffle_documents` must be False unless"),
        ({"stride": 3, "pack": "best_fit"}, "`stride` must be None or seq_len 4, got 3"),
        ({"random_offset": True, "pack": "best_fit"}, "`random_offset` must be False, got True"),
        ({"align": "document", "pack": "best_fit"}, "`align` must be 'none', got 'document'"),
        ({"tail": "cover", "pack": "best_fit"}, "`tail` must be 'drop' or 'pad', got 'cover'"),
        ({"random_offset": True, "offset": 2}, "`offset` must be 0 with random_offset=True, got 2"),
        ({"offset": -1}, "`offset` must be at least 0, got -1"),
    ],
)
def test_config_names_settings_that_contradict_each_other(settings, message):
    with pytest.raises(ValueError, match=message):
        WindowConfig(4, **settings)


def test_config_allows_a_stride_beyond_the_window():
    assert WindowConfig(4, 9).step == 9
