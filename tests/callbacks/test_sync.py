"""What ranks exchange: where it must lie, its types, and when nothing may be exchanged at all."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tiny import Bigram, make_parts, make_trainer

from adaptive_sampling.callbacks import _sync
from adaptive_sampling.sampling import _collective

pytestmark = pytest.mark.filterwarnings("ignore:no learned weight can count")
COLLECTIVES = ("all_gather", "all_reduce", "broadcast", "broadcast_object_list", "barrier", "all_gather_object")


@pytest.fixture
def alone(monkeypatch):
    """A real gloo group of one rank that is taken for one of many."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    monkeypatch.setattr(_sync, "connected", lambda: True)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("config", "device"),
    [
        ("cuda:nccl", "cuda"),
        ("cpu:gloo,cuda:gloo", "cpu"),
        ("cpu:gloo,cuda:nccl", "cpu"),
        ("cuda:nccl,cpu:gloo", "cpu"),
        ("xpu:xccl", "xpu"),
    ],
)
def test_tensors_travel_from_where_the_backend_takes_them(monkeypatch, config, device):
    monkeypatch.setattr(dist, "get_backend_config", lambda: config)
    assert _collective.meeting_device() == torch.device(device)


@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo", None])
def test_a_group_that_serves_the_cpu_is_met_there(backend):
    dist.init_process_group(backend, rank=0, world_size=1, store=dist.HashStore())
    try:
        assert _collective.meeting_device() == torch.device("cpu")
    finally:
        dist.destroy_process_group()


def test_values_come_back_to_the_bit_and_no_float64_travels(alone, monkeypatch):
    sent = []
    for name in ("all_gather", "broadcast"):
        original = getattr(dist, name)

        def noting(*args, original=original):
            sent.extend(each for each in args if isinstance(each, torch.Tensor))
            return original(*args)

        monkeypatch.setattr(dist, name, noting)
    ids = torch.tensor([2**40, 3])
    values = torch.tensor([[1e-40, float("nan")], [-0.0, 3e38]], dtype=torch.float64)
    ((got_ids, got),) = _sync.gather_observations(ids, values)
    assert got_ids.tolist() == ids.tolist()
    np.testing.assert_array_equal(got.numpy().view(np.int32), values.float().numpy().view(np.int32))
    weights = np.array([0.1, 2.5], np.float32)
    changed, got_weights = _sync.broadcast_weights(lambda: (np.array([7, 2**40]), weights))
    assert changed.tolist() == [7, 2**40]
    np.testing.assert_array_equal(got_weights, weights)
    assert _sync.ranks_that_differ(weights) == []
    assert len(sent) >= 6
    # An accelerator may have no float64 (MPS).
    assert {tensor.dtype for tensor in sent} == {torch.int64, torch.float32}


def test_state_and_exception_make_no_collective_call(tmp_path, monkeypatch):
    _, loader, callback = make_parts()
    trainer = make_trainer(tmp_path, callback, max_epochs=1)
    trainer.fit(Bigram(), loader)

    def never(*args, **kwargs):
        raise AssertionError("a rank may wait for ever")

    monkeypatch.setattr(_sync, "connected", lambda: True)
    for name in COLLECTIVES:
        monkeypatch.setattr(dist, name, never)
    assert callback.state_dict()["num_steps"] == 12
    callback.on_exception(trainer, trainer.lightning_module, ValueError("one rank failed"))
    callback.teardown(trainer, trainer.lightning_module, "fit")
