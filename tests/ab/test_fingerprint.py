import numpy as np
import pytest
import torch

from adaptive_sampling.ab.fingerprint import digest


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 2)])
def test_the_digest_of_a_tensor_is_that_of_its_values_whatever_its_strides(shape, dtype):
    plain = torch.ones(shape, dtype=dtype)
    expanded = torch.ones((), dtype=dtype).expand(shape)
    assert digest(plain) == digest(expanded)
    if plain.numel():
        assert digest(plain) != digest(torch.zeros_like(plain))
    assert digest(plain) != digest(plain.reshape(*shape, 1))


def test_the_digest_tells_types_apart_and_takes_any_array():
    values = np.arange(6.0).reshape(2, 3)
    assert digest(values.T) == digest(np.ascontiguousarray(values.T)) != digest(values)
    assert digest(values) != digest(values.astype(np.float32)) != digest(torch.from_numpy(values))
    assert digest(np.broadcast_to(np.float64(1), (1,))) == digest(np.ones(1))
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 2, "b": 1})
