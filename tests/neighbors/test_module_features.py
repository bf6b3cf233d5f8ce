import copy
import random

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import nn

from adaptive_sampling.neighbors import module_features


class Windows:
    def __init__(self, tokens, labels=None):
        self.tokens = tokens
        self.labels = tokens if labels is None else labels

    def __len__(self):
        return len(self.tokens)

    def read(self, ids):
        return {"input_ids": self.tokens[ids], "labels": self.labels[ids]}


class Model(nn.Module):
    """With all that a forward pass could leave behind: dropout, running statistics, a buffer, tuples."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 6)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(6)
        self.rnn = nn.GRU(6, 5, batch_first=True)
        self.head = nn.Linear(5, 50)
        self.unused = nn.Linear(2, 2)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, ids):
        self.calls += 1
        torch.rand(1), random.random(), np.random.rand()  # noqa: NPY002
        return self.head(self.rnn(self.norm(self.drop(self.embed(ids)).transpose(1, 2)).transpose(1, 2))[0])


@pytest.fixture
def tokens():
    return np.random.default_rng(0).integers(0, 50, (21, 7))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


def test_module_features_are_mean_hidden_states(model, tokens):
    expected = model.eval().embed(torch.from_numpy(tokens)).mean(1).detach().numpy()
    features = module_features(model, Windows(tokens), layer="embed", batch_size=4)
    np.testing.assert_allclose(features, expected, atol=1e-6)
    assert features.dtype == np.float32
    whole = model.rnn(model.norm(model.embed(torch.from_numpy(tokens)).transpose(1, 2)).transpose(1, 2))[0]
    np.testing.assert_allclose(
        module_features(model, Windows(tokens), layer="rnn"), whole.mean(1).detach().numpy(), atol=1e-6
    )


def test_padding_at_the_end_does_not_count(model, tokens):
    labels = tokens.copy()
    labels[:, 4:] = -100
    labels[:, 1] = -100
    labels[0] = -100
    expected = model.embed(torch.from_numpy(tokens)).detach().numpy()[:, :4].mean(1)
    expected[0] = 0
    features = module_features(model, Windows(tokens, labels), layer="embed")
    np.testing.assert_allclose(features, expected, atol=1e-6)


def test_the_module_and_the_random_states_are_left_as_they_were(model, tokens):
    model.train()
    model.norm.eval()
    model.embed.weight.grad = torch.ones_like(model.embed.weight)
    before = copy.deepcopy(model.state_dict())
    modes = [part.training for part in model.modules()]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    module_features(model, Windows(tokens), layer="rnn")
    with pytest.raises(ValueError, match="which was not called"):
        module_features(model, Windows(tokens), layer="unused")
    assert [part.training for part in model.modules()] == modes
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert (model.embed.weight.grad == 1).all()
    assert model.embed.weight.requires_grad
    assert not any(part._forward_hooks for part in model.modules())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    np.testing.assert_array_equal(np.random.get_state()[1], states[2])  # noqa: NPY002


def test_any_map_style_dataset_and_any_way_to_run_the_module(model, tokens):
    class NoForward(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = model

    items = [{"input_ids": row} for row in torch.from_numpy(tokens)]
    expected = module_features(model, Windows(tokens), layer="embed")
    np.testing.assert_allclose(module_features(model, items, layer="embed"), expected, atol=1e-6)
    wrapped = NoForward()
    with pytest.raises(TypeError, match=r"NoForward must have a forward method.*`forward="):
        module_features(wrapped, items, layer="inner.embed")
    features = module_features(
        wrapped, items, layer="inner.embed", forward=lambda module, batch: module.inner(batch["input_ids"])
    )
    np.testing.assert_allclose(features, expected, atol=1e-6)
    pairs = [(row, row) for row in torch.from_numpy(tokens)]
    np.testing.assert_allclose(module_features(model, pairs, layer="embed"), expected, atol=1e-6)


def test_half_precision_states_become_float32(model, tokens):
    model.embed.bfloat16()
    features = module_features(
        model, Windows(tokens), layer="embed", forward=lambda module, batch: module.embed(batch["input_ids"])
    )
    assert features.dtype == np.float32
    assert np.isfinite(features).all()


def test_module_features_go_to_a_file(model, tokens, tmp_path):
    written = module_features(model, Windows(tokens), layer="rnn", out=tmp_path / "states.npy", batch_size=4)
    np.testing.assert_array_equal(written, module_features(model, Windows(tokens), layer="rnn", batch_size=4))


def test_bad_layers_are_refused_with_what_there_is(model, tokens):
    with pytest.raises(ValueError, match=r"`layer` must name a submodule, got 'rn'. There are: embed, drop, norm"):
        module_features(model, Windows(tokens), layer="rn")
    with pytest.raises(ValueError, match=r"`layer` 'head' must return .* got \(1, 7, 2, 50\) of torch.float32"):
        module_features(
            model, Windows(tokens), layer="head", forward=lambda module, batch: module.head(torch.zeros(1, 7, 2, 5))
        )
    with pytest.raises(ValueError, match="at least one window"):
        module_features(model, Windows(tokens[:0]), layer="embed")
    with pytest.raises(ValueError, match="`batch_size`"):
        module_features(model, Windows(tokens), layer="embed", batch_size=0)
