import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import cross_entropy as by_another_name

from adaptive_sampling.callbacks import _capture_way
from adaptive_sampling.callbacks._capture_way import CaptureWay
from adaptive_sampling.callbacks.loss_capture import LossCapture
from tests.callbacks.test_loss_capture import CALLS, FLAT_TARGET, losses_and_gradient

LOGITS = torch.randn(6, 7, generator=torch.Generator().manual_seed(0))
ORIGINAL = F.cross_entropy


@pytest.fixture(autouse=True)
def nothing_compiled_and_all_put_back(monkeypatch):
    monkeypatch.setattr(_capture_way, "_anything_compiled", lambda: False)
    yield
    assert F.cross_entropy is ORIGINAL


def step(way, call=CALLS["functional"]):
    capture = LossCapture()
    with way.watching(capture):
        call(LOGITS)
    return capture


def direct_way(call=CALLS["functional"]):
    way = CaptureWay()
    assert [len(step(way, call).calls) for _ in range(2)] == [1, 1]
    return way


def test_calls_through_the_module_are_seen_directly_from_the_third_step_on():
    way = direct_way()
    assert way.direct

    watched = []

    class Watcher(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            watched.append(func)
            return func(*args, **(kwargs or {}))

    with Watcher():
        capture = step(way)
    assert len(capture.calls) == 1
    assert watched, "a mode of the user still sees what the module does"


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_direct_way_leaves_loss_and_gradient_bit_identical_and_notes_the_same(name, dtype):
    if name in ("class weights", "probabilities") and dtype is not torch.float32:
        pytest.skip("torch itself wants weights and probabilities in the dtype of the logits")
    logits, by_mode, direct = LOGITS.to(dtype), LossCapture(), LossCapture()
    expected = losses_and_gradient(CALLS[name], logits)
    losses_and_gradient(CALLS[name], logits, by_mode)
    way = direct_way()
    got = losses_and_gradient(CALLS[name], logits, way.watching(direct))
    assert way.direct
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])
    assert [torch.equal(a.losses, b.losses) for a, b in zip(direct.calls, by_mode.calls, strict=True)] == [True]


@pytest.mark.parametrize("smoothing", [0.0, 0.1], ids=["split", "called twice"])
def test_a_name_bound_beforehand_keeps_the_mode(smoothing):
    way = CaptureWay()
    for _ in range(4):
        capture = step(way, lambda x: by_another_name(x, FLAT_TARGET, label_smoothing=smoothing))
        assert len(capture.calls) == 1
    assert way.direct is False


def test_one_of_two_names_keeps_the_mode():
    way = CaptureWay()
    for _ in range(4):
        assert len(step(way, lambda x: by_another_name(x, FLAT_TARGET) + F.cross_entropy(x, FLAT_TARGET)).calls) == 2
    assert way.direct is False


def test_a_step_that_shows_nothing_brings_the_mode_back():
    way = direct_way()
    assert step(way, lambda x: by_another_name(x, FLAT_TARGET)).calls == []
    assert len(step(way, lambda x: by_another_name(x, FLAT_TARGET)).calls) == 1
    assert way.direct is False


def test_steps_without_a_call_decide_nothing():
    way = CaptureWay()
    for _ in range(3):
        step(way, lambda x: x.sum())
        assert way.direct is None
    step(way)
    step(way, lambda x: x.sum())
    assert way.direct is None
    step(way)
    assert way.direct


def test_anything_compiled_brings_the_mode_back_before_the_next_step(monkeypatch):
    way = direct_way()
    monkeypatch.setattr(_capture_way, "_anything_compiled", lambda: True)
    assert len(step(way, lambda x: by_another_name(x, FLAT_TARGET)).calls) == 1
    assert way.direct is False


def test_a_failing_step_puts_the_function_back():
    for way in (CaptureWay(), direct_way()):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="of the user"), way.watching(LossCapture()):
                raise RuntimeError("of the user")
            assert F.cross_entropy is ORIGINAL


def test_wrong_arguments_raise_what_torch_says_and_the_next_call_is_noted():
    way, capture = direct_way(), LossCapture()
    with way.watching(capture):
        with pytest.raises((IndexError, RuntimeError, ValueError)):
            F.cross_entropy(LOGITS, torch.tensor([1, 2]))
        F.cross_entropy(LOGITS, FLAT_TARGET)
    assert len(capture.calls) == 1


def test_other_threads_and_later_calls_are_not_noted():
    way, capture = direct_way(), LossCapture()
    with way.watching(capture):
        held = F.cross_entropy
        other = threading.Thread(target=lambda: F.cross_entropy(LOGITS, FLAT_TARGET))
        other.start()
        other.join()
        F.cross_entropy(LOGITS, FLAT_TARGET)
    assert torch.equal(held(LOGITS, FLAT_TARGET), ORIGINAL(LOGITS, FLAT_TARGET))
    assert len(capture.calls) == 1


def test_two_trainings_in_threads_leave_nothing_behind_and_note_their_own_calls():
    turns = [threading.Barrier(2) for _ in range(3)]
    noted = {}

    def train(name, num_calls):
        way = direct_way()
        capture = LossCapture()
        turns[0].wait()
        with way.watching(capture):
            turns[1].wait()
            for _ in range(num_calls):
                F.cross_entropy(LOGITS, FLAT_TARGET)
            turns[2].wait()
            noted[name] = len(capture.calls)

    threads = [threading.Thread(target=train, args=args) for args in (("first", 1), ("second", 2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert noted == {"first": 1, "second": 2}
    assert F.cross_entropy is ORIGINAL


def test_a_training_within_a_step_of_another_notes_its_own_calls():
    outer, inner = direct_way(), direct_way()
    first, second = LossCapture(), LossCapture()
    with outer.watching(first):
        F.cross_entropy(LOGITS, FLAT_TARGET)
        with inner.watching(second):
            F.cross_entropy(LOGITS, FLAT_TARGET)
        F.cross_entropy(LOGITS, FLAT_TARGET)
    assert (len(first.calls), len(second.calls)) == (2, 1)


def test_a_module_that_takes_hold_of_it_in_a_step_is_noted_in_the_next():
    held = []

    def call(logits):
        held[:] = held or [F.cross_entropy]
        return held[0](logits, FLAT_TARGET)

    way = CaptureWay()
    step(way)
    assert [len(step(way, call).calls) for _ in range(4)] == [1, 1, 1, 1]


def test_what_a_user_puts_in_its_place_in_a_step_stays_and_is_noted():
    way = direct_way()

    def put(logits):
        before = F.cross_entropy
        F.cross_entropy = lambda *args, **kwargs: before(*args, **kwargs)
        return F.cross_entropy(logits, FLAT_TARGET)

    try:
        assert len(step(way, put).calls) == 1
        mine = F.cross_entropy
        for _ in range(3):
            assert len(step(way).calls) == 1
            assert F.cross_entropy is mine
    finally:
        F.cross_entropy = ORIGINAL


def test_a_tensor_with_functions_of_its_own_is_noted_once():
    class Marked(torch.Tensor):
        pass

    way, capture = direct_way(), LossCapture()
    with way.watching(capture):
        loss = nn.CrossEntropyLoss()(LOGITS.as_subclass(Marked), FLAT_TARGET)
        F.cross_entropy(LOGITS.as_subclass(Marked), FLAT_TARGET, label_smoothing=0.1)
    assert isinstance(loss, Marked)
    assert len(capture.calls) == 2


def test_compiling_is_noticed(monkeypatch):
    monkeypatch.undo()
    from torch._dynamo.utils import counters

    before = counters["frames"]["total"]
    counters["frames"]["total"] = 0
    assert not _capture_way._anything_compiled()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert _capture_way._anything_compiled()
    counters["frames"]["total"] += before
