"""Names, order and defaults of the parameters that users write: a change here breaks their code."""

import inspect

import pytest

import adaptive_sampling as ads
from adaptive_sampling.ab import Arm, TrainingData, run_ab
from adaptive_sampling.callbacks import AdaptiveSampling, SamplingMonitor

PROMISED = {
    ads.TokenStore.write: "path, documents, *, vocab_size, eos_id, sources=None, keys=None, append_eos=True",
    ads.TokenStore.open: "path, verify='size'",
    ads.WindowConfig: (
        "seq_len, stride=None, *, tail='drop', random_offset=False, min_length=0, pack='none', group_by=None, "
        "align='none', thinning=1.0, mask_repeated_targets=False, seed=0"
    ),
    ads.WindowDataset: "store, config",
    ads.AdaptiveSampler: (
        "num_windows_or_dataset, *, num_draws=None, draws='systematic', block_size=None, seed=None, rank=None, "
        "world_size=None, source_shares=None, stratified=False"
    ),
    ads.WeightPolicy: (
        "signal='loss', *, decay=0.9, power=1.0, clip=(0.05, 0.9), shrinkage=2.0, groups=None, scarcity=None, "
        "blend=0.3, priors=None, floor=0.1, cap=4.0, warmup=0.05, cooldown=0.1, normalize_every=20, importance=0.0"
    ),
    ads.hashed_features: "dataset, dim=64",
    ads.scarcity_scores: "feats, num_neighbors=20, *, measure='density', groups=None, index='auto'",
    ads.with_ids: "dataset",
    ads.record: "losses",
    ads.weighted_mean: "losses, batch",
    ads.transfer_weights: "old, new, weights",
    ads.testing.assert_resumes_exactly: "make_sampler",
    AdaptiveSampling: ("sampler=None, policy=None, *, update_every=50, id_key='window_id', loss_key='per_sample_loss'"),
    SamplingMonitor: "sampler=None, *, every_n_steps=100, hard_windows=256",
    Arm: "name, policy=None, *, placebo_of=None",
    TrainingData: "dataset, validation, batch_size",
    run_ab: "arms, make_module, make_data, *, max_steps, seeds=(0, 1, 2), out_dir",
}


@pytest.mark.parametrize("function", PROMISED, ids=lambda function: function.__qualname__)
def test_promised_parameters_stand_where_they_stood(function):
    promised = inspect.signature(eval(f"lambda {PROMISED[function]}: None")).parameters
    actual = inspect.signature(function).parameters
    for name, parameter in promised.items():
        assert name in actual, name
        assert actual[name].default == parameter.default, name
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            assert actual[name].kind is inspect.Parameter.KEYWORD_ONLY, name
    positional = [name for name, parameter in promised.items() if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert list(actual)[: len(positional)] == positional
    # What came later may be left out.
    added = set(actual) - set(promised)
    optional = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    assert all(actual[name].default is not inspect.Parameter.empty or actual[name].kind in optional for name in added)


def test_promised_attributes_are_there(tmp_path):
    store = ads.TokenStore.write(
        tmp_path / "store", [list(range(9))] * 3, vocab_size=10, eos_id=9, keys=["a", "b", "c"]
    )
    for name in ("tokens", "document_ends", "document_sources", "source_names", "num_tokens", "num_documents"):
        assert hasattr(store, name), name
    dataset = ads.WindowDataset(store, ads.WindowConfig(4))
    for name in ("read", "starts", "documents", "sources", "set_epoch", "trace", "__getitems__"):
        assert callable(getattr(dataset, name)), name
    sampler, policy = ads.AdaptiveSampler(dataset), ads.WeightPolicy()
    policy.bind(len(dataset))
    for name in (
        "set_weights",
        "update_weights",
        "probabilities",
        "draw",
        "state_dict",
        "load_state_dict",
        "set_epoch",
    ):
        assert callable(getattr(sampler, name)), name
    assert len(sampler.weights) == len(sampler) == len(dataset)
    assert sampler.lag == 32
    for name in ("scores", "visits", "weights"):
        assert len(getattr(policy, name)) == len(dataset), name
    callback = AdaptiveSampling(sampler, policy)
    assert callback.sampler is sampler
    assert callback.policy is policy
