import numpy as np
import pytest

import adaptive_sampling as ads
from adaptive_sampling.testing import assert_resumes_exactly


@pytest.mark.parametrize("draws", ["systematic", "multinomial"])
@pytest.mark.parametrize("world", [1, 2])
def test_our_sampler_resumes_exactly(draws, world):
    def make():
        sampler = ads.AdaptiveSampler(30, num_draws=22, draws=draws, block_size=7, seed=1, rank=0, world_size=world)
        sampler.set_weights(np.arange(30) + 1.0)
        return sampler

    ads.testing.assert_resumes_exactly(make)


def test_a_sampler_that_forgets_its_place_is_found():
    class Forgetful(ads.AdaptiveSampler):
        def load_state_dict(self, state):
            pass

    with pytest.raises(AssertionError, match=r"stopped after 0 ids and 1 more, position 1 differs"):
        assert_resumes_exactly(lambda: Forgetful(10, seed=0), stops=[0, 1])


def test_a_sampler_without_a_fixed_seed_is_found():
    seeds = iter(range(100))
    with pytest.raises(AssertionError, match="fixed seed"):
        assert_resumes_exactly(lambda: ads.AdaptiveSampler(10, seed=next(seeds)))


def test_stops_may_lie_in_any_epoch_and_must_be_numbers_of_ids():
    assert_resumes_exactly(lambda: ads.AdaptiveSampler(3, seed=0), stops=[0, 8, 11])
    for bad in (-1, 1.5):
        with pytest.raises((TypeError, ValueError), match=f"`stops` .*{bad}"):
            assert_resumes_exactly(lambda: ads.AdaptiveSampler(3, seed=0), stops=[bad])
