import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.weights import concentration
from adaptive_sampling.weights.transforms import mix_uniform, uniform_share


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=250))
def test_concentration_is_counted_by_hand(values):
    told = concentration(values, largest=50.0)
    assert told.effective_sample_size == pytest.approx(sum(values) ** 2 / (len(values) * sum(v * v for v in values)))
    top = sorted(values, reverse=True)[: math.ceil(len(values) / 100)]
    assert told.top_percent_mass == pytest.approx(sum(top) / sum(values))
    assert told.num_at_cap == sum(v >= 50 for v in values)


def test_equal_weights_are_not_concentrated():
    told = concentration(np.ones(1000), largest=math.inf)
    assert (told.effective_sample_size, told.top_percent_mass, told.num_at_cap) == (1.0, 0.01, 0)


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(0.01, 100)), min_size=2, max_size=50).filter(any), st.floats(0.05, 1.0)
)
def test_uniform_share_is_the_least_that_keeps_the_bound(values, bound):
    weights = np.array(values) / np.mean(values)
    share = uniform_share(float(np.square(weights).mean()), bound)
    assert 0 <= share <= 1
    size = concentration(mix_uniform(weights, share), math.inf).effective_sample_size
    assert size >= bound - 1e-9
    if share > 1e-6:
        assert size == pytest.approx(bound)
