"""Orders that others may rely on: a change here breaks every resumed run and must be a new state version."""

import json
from pathlib import Path

import numpy as np
import pytest

from adaptive_sampling import AdaptiveSampler

GOLDEN = json.loads(Path(__file__).with_name("draw_orders.json").read_text())


def order_of(draws, seed):
    sampler = AdaptiveSampler(13, num_draws=20, draws=draws, block_size=8, seed=seed)
    sampler.set_weights(np.arange(13) % 4 + 0.5)
    first = sampler.draw(24).tolist()
    sampler.update_weights([2, 7], [6.0, 0.0])
    return first + sampler.draw(24).tolist()


def order_with_shares(stratified):
    sampler = AdaptiveSampler(
        13,
        num_draws=20,
        block_size=8,
        seed=0,
        sources=[0, 1, 1, 2, 0, 0, 1, 2, 2, 2, 0, 1, 0],
        source_shares=[(0, {0: 5, 1: 3, 2: 2}), (40, {0: 1, 1: 1, 2: 1})],
        stratified=stratified,
    )
    sampler.set_weights(np.arange(13) % 4 + 0.5)
    first = sampler.draw(24).tolist()
    sampler.update_weights([2, 7], [6.0, 0.0])
    return first + sampler.draw(24).tolist()


@pytest.mark.parametrize("stratified", [False, True])
def test_draw_order_with_shares_is_the_golden_one(stratified):
    assert order_with_shares(stratified) == GOLDEN["stratified" if stratified else "shares"]


@pytest.mark.parametrize("draws", ["systematic", "multinomial"])
@pytest.mark.parametrize("seed", [0, 1])
def test_draw_order_is_the_golden_one(draws, seed):
    assert order_of(draws, seed) == GOLDEN[f"{draws}-{seed}"]
