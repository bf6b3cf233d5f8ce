"""Shapes in which users hand over the losses of a batch: what is unambiguous is taken, the rest is a question."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from adaptive_sampling.callbacks._step_watch import StepWatch
from adaptive_sampling.callbacks._window_values import WindowValues, window_ids


def read(losses, count=4):
    return WindowValues(("loss",), "per_sample_loss").read(StepWatch(), {"per_sample_loss": losses}, count)["loss"]


@pytest.mark.parametrize("shape", [(4,), (4, 1), (1, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_one_value_per_window_is_taken_detached_and_in_float32(shape, dtype):
    losses = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=dtype, requires_grad=True).reshape(shape)
    values = read(losses)
    assert values.dtype is torch.float32
    assert not values.requires_grad
    assert values.tolist() == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize("shape", [(), (3,), (5,), (4, 6), (2, 2), (4, 4), (1, 4, 1)])
def test_anything_else_is_a_question_that_names_both_shapes(shape):
    with pytest.raises(MisconfigurationException) as error:
        read(torch.ones(shape))
    assert "shape (4,)" in str(error.value)
    assert f"got {tuple(shape)}" in str(error.value)


def test_a_batch_of_one_takes_a_scalar():
    assert read(torch.tensor(2.0), 1).tolist() == [2.0]


@pytest.mark.parametrize("given", ["x", {"a": 1}, [[1.0], [1.0, 2.0]]], ids=repr)
def test_what_is_no_tensor_is_a_question_that_names_the_key(given):
    with pytest.raises(MisconfigurationException, match="'per_sample_loss' in what training_step returns must be"):
        read(given)


def test_the_question_names_what_is_needed():
    watch = StepWatch()
    watch.capture = SimpleNamespace(calls=[])
    watch.recorded.append(torch.ones(4))
    with pytest.raises(MisconfigurationException, match="needs one entropy per window") as error:
        WindowValues(("entropy",), "per_sample_loss").read(watch, {}, 4)
    assert '"per_sample_entropy": values' in str(error.value)
    assert "record(losses)" not in str(error.value)


@pytest.mark.parametrize("key", ["window_id", 7])
def test_a_tuple_that_is_wrapped_already_needs_the_place_of_its_ids(key):
    batch = (torch.ones(4), torch.ones(4), torch.arange(4))
    with pytest.raises(MisconfigurationException, match=r"a tuple of 3 entries.*`id_key=-1` is the last"):
        window_ids(batch, key)
    assert window_ids(batch, -1).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "ids", [[3, 1, 2], np.array([3, 1, 2]), torch.tensor([[3], [1], [2]]), torch.tensor([3, 1, 2], dtype=torch.int32)]
)
def test_ids_come_in_any_form_that_has_one_integer_per_window(ids):
    assert window_ids({"window_id": ids}, "window_id").tolist() == [3, 1, 2]
    assert window_ids(SimpleNamespace(window_id=ids), "window_id").tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("ids", "got"),
    [
        (torch.ones(4), r"float32 of shape \(4,\)"),
        (torch.ones(4, 2).long(), r"int64 of shape \(4, 2\)"),
        (torch.ones(4).bool(), r"bool of shape \(4,\)"),
        (["a", "b"], "list"),
    ],
)
def test_other_ids_are_a_question_that_names_type_and_shape(ids, got):
    with pytest.raises(MisconfigurationException, match=rf"one integer per window.*got .*{got}.*with_ids"):
        window_ids({"window_id": ids}, "window_id")


def test_negative_losses_are_refused_at_the_first_batch_alone():
    values = WindowValues(("loss",), "per_sample_loss", -1e-4)
    with pytest.raises(MisconfigurationException, match=r"must not be negative.*got -2\.0.*'per_sample_loss'.*record"):
        values.read(StepWatch(), {"per_sample_loss": torch.tensor([1.0, -2.0])}, 2)
    assert values.read(StepWatch(), {"per_sample_loss": torch.tensor([1.0, -1e-6])}, 2) is not None
    assert values.read(StepWatch(), {"per_sample_loss": torch.tensor([1.0, -2.0])}, 2) is not None
