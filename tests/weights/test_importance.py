import numpy as np
import pytest
import torch

import adaptive_sampling as ads
from adaptive_sampling.weights import share_target, weighted_mean
from adaptive_sampling.weights.transforms import importance


@pytest.mark.parametrize("weights", [[4.0, 2.0, 1.0, 1.0], [1.0, 1.0, 1.0, 5.0]])
def test_gamma_one_makes_the_mean_corrected_gradient_over_an_epoch_the_uniform_one(weights):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1).double()
    inputs, targets = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 1, dtype=torch.float64)

    def gradient(loss):
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])

    uniform = gradient(((model(inputs) - targets) ** 2).mean())
    policy = ads.WeightPolicy(importance=1.0, warmup=0, cooldown=0)
    policy.bind(4)
    # Eight draws: systematic draws give each window its expected count exactly.
    sampler = ads.AdaptiveSampler(4, num_draws=8, seed=0)
    sampler.set_weights(np.array(weights))
    total = torch.zeros(4, dtype=torch.float64)
    for _ in range(4):
        ids = sampler.draw(2)
        batch = {"importance_weight": torch.from_numpy(policy.importance_weights(sampler.probabilities(ids)))}
        losses = ((model(inputs[ids]) - targets[ids]) ** 2)[:, 0]
        total += gradient(ads.weighted_mean(losses, batch)) / 4
    torch.testing.assert_close(total, uniform, rtol=1e-12, atol=1e-12)


def test_gamma_zero_corrects_nothing_and_half_of_it_lies_between():
    p = np.array([0.5, 0.25, 0.125, 0.125])
    np.testing.assert_allclose(importance(p, 0.25, 0.5), np.sqrt([0.5, 1, 2, 2]))


def test_weighted_mean_is_not_renormalised_and_carries_the_gradient():
    losses = torch.tensor([1.0, 3.0], requires_grad=True)
    weighted = weighted_mean(losses, {"importance_weight": torch.tensor([2.0, 0.5], dtype=torch.float64)})
    assert weighted.item() == 1.75
    weighted.backward()
    assert losses.grad.tolist() == [1.0, 0.25]
    rows = torch.tensor([[1.0, 3.0], [5.0, 5.0]])
    assert weighted_mean(rows, {"importance_weight": torch.tensor([1.0, 0.2])}).item() == pytest.approx(1.5)


def test_weighted_mean_without_weights_is_the_plain_mean():
    losses = torch.tensor([1.0, 3.0])
    assert weighted_mean(losses, {}).item() == 2.0
    assert weighted_mean(losses, None).item() == 2.0


def test_weighted_mean_refuses_what_is_no_loss_per_window():
    batch = {"importance_weight": torch.ones(3)}
    with pytest.raises(ValueError, match=r"got \(\).*reduction='none'"):
        weighted_mean(torch.tensor(1.0), batch)
    with pytest.raises(ValueError, match=r"one weight per window \(2\), got shape \(3,\)"):
        weighted_mean(torch.ones(2), batch)
    with pytest.raises(TypeError, match="got list"):
        weighted_mean([1.0], batch)
    with pytest.raises(TypeError, match=r"floating-point tensor, got torch.int64"):
        weighted_mean(torch.ones(3, dtype=torch.int64), batch)


def test_with_source_shares_and_equal_weights_inside_every_correction_is_one():
    sources = np.array([0, 0, 0, 1])
    sampler = ads.AdaptiveSampler(4, seed=0)
    sampler.set_weights(np.array([1.0, 1.0, 1.0, 3.0]))  # the source's share, even inside
    target = share_target(sources, [0.5, 0.5])
    np.testing.assert_allclose(importance(sampler.probabilities(), target, 1.0), 1)
    np.testing.assert_allclose(target.sum(), 1)


def test_share_target_leaves_out_what_is_excluded_and_refuses_empty_sources():
    np.testing.assert_allclose(share_target([0, 0, 1, 1], [1, 3], priors=[1, 0, 2, 1]), [0.25, 0, 0.375, 0.375])
    with pytest.raises(ValueError, match=r"source without windows, got 3\.0 for source 1"):
        share_target([0, 0], [1, 3])
    with pytest.raises(ValueError, match=r"`sources` must be in \[0, 2\), .* got 2 for window 1"):
        share_target([0, 2], [1, 3])
    with pytest.raises(ValueError, match=r"`priors` must hold one entry per window \(2\), got 3"):
        share_target([0, 1], [1, 3], priors=[1, 1, 1])
