import pytest
import torch
import torch.nn.functional as F
from torch import nn

from adaptive_sampling.callbacks import LossCapture


def losses_and_gradient(call, logits, capture=None):
    logits = logits.clone().requires_grad_()
    if capture is None:
        loss = call(logits)
    else:
        with capture:
            loss = call(logits)
    loss.sum().backward()
    return loss.detach(), logits.grad


FLAT_TARGET = torch.tensor([3, 0, -100, 2, 6, 6])
CALLS = {
    "functional": lambda x: F.cross_entropy(x, FLAT_TARGET),
    "keywords": lambda x: F.cross_entropy(input=x, target=FLAT_TARGET, reduction="sum"),
    "module": lambda x: nn.CrossEntropyLoss()(x, FLAT_TARGET),
    "none": lambda x: F.cross_entropy(x, FLAT_TARGET, reduction="none"),
    "ignore_index": lambda x: F.cross_entropy(x, FLAT_TARGET.clamp(min=0), ignore_index=6),
    "smoothing": lambda x: F.cross_entropy(x, FLAT_TARGET, label_smoothing=0.1),
    "class weights": lambda x: F.cross_entropy(x, FLAT_TARGET, weight=torch.arange(7.0)),
    "probabilities": lambda x: F.cross_entropy(x, torch.full((6, 7), 1 / 7)),
    "three dimensions": lambda x: F.cross_entropy(x.reshape(2, 3, 7).transpose(1, 2), FLAT_TARGET.reshape(2, 3)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_capture_leaves_loss_and_gradient_bit_identical(name, dtype):
    logits = torch.randn(6, 7, generator=torch.Generator().manual_seed(0)).to(dtype)
    if name in ("class weights", "probabilities") and dtype is not torch.float32:
        pytest.skip("torch itself wants weights and probabilities in the dtype of the logits")
    capture = LossCapture()
    expected = losses_and_gradient(CALLS[name], logits)
    got = losses_and_gradient(CALLS[name], logits, capture)
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])
    assert len(capture.calls) == 1


def test_capture_is_bit_identical_under_autocast():
    inputs, head = torch.randn(6, 5), nn.Linear(5, 7)

    def run(capture):
        head.zero_grad()
        with torch.autocast("cpu", torch.bfloat16), capture:
            loss = F.cross_entropy(head(inputs), FLAT_TARGET)
        loss.backward()
        return loss.detach(), head.weight.grad.clone()

    import contextlib

    expected, got = run(contextlib.nullcontext()), run(LossCapture())
    assert torch.equal(expected[0], got[0])
    assert torch.equal(expected[1], got[1])


@pytest.mark.parametrize("name", ["functional", "three dimensions", "module"])
def test_window_means_equal_those_computed_by_hand(name):
    logits = torch.randn(6, 7)
    capture = LossCapture()
    with capture:
        CALLS[name](logits)
    log_p = logits.log_softmax(1)
    by_hand = torch.stack([-(log_p[0, 3] + log_p[1, 0]) / 2, -(log_p[3, 2] + log_p[4, 6] + log_p[5, 6]) / 3])
    torch.testing.assert_close(capture.calls[0].window_means(2), by_hand)
    assert capture.calls[0].losses.dtype is torch.float32
    assert not capture.calls[0].losses.requires_grad


def test_a_window_without_valid_targets_has_no_loss():
    capture = LossCapture()
    with capture:
        F.cross_entropy(torch.randn(4, 7), torch.tensor([1, 2, -100, -100]))
    means = capture.calls[0].window_means(2)
    assert means[0].isfinite()
    assert means[1].isnan()


def test_nothing_is_captured_outside_or_by_other_functions():
    capture = LossCapture()
    F.cross_entropy(torch.randn(6, 7), FLAT_TARGET)
    with capture:
        F.mse_loss(torch.randn(3), torch.randn(3))
    assert capture.calls == []


def test_fits_wants_an_even_share_of_targets():
    capture = LossCapture()
    with capture:
        F.cross_entropy(torch.randn(6, 7), FLAT_TARGET)
    assert [n for n in range(8) if capture.calls[0].fits(n)] == [1, 2, 3, 6]
