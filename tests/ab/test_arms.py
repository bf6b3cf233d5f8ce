from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from adaptive_sampling.ab import Arm, TrainingData
from adaptive_sampling.ab.arms import check_arms, fresh_policy, like_what_they_imitate
from adaptive_sampling.ab.settings import check_seeds
from adaptive_sampling.weights import WeightPolicy


def test_arm_kind_follows_from_what_it_is_given() -> None:
    assert Arm("u").kind == "uniform"
    assert Arm("a", WeightPolicy()).kind == "adaptive"
    assert Arm("p", placebo_of="a").kind == "placebo"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"name": ""}, "''"),
        ({"name": "a/b"}, "'a/b'"),
        ({"name": "é" * 101}, "at most 200 bytes"),
        ({"name": "a", "policy": 3}, "got 3"),
        ({"name": "a", "policy": WeightPolicy, "placebo_of": "b"}, "'b'"),
        ({"name": "a", "draws": "multinomial"}, "without a policy"),
        ({"name": "a", "policy": WeightPolicy, "draws": "even"}, "'even'"),
        ({"name": "a", "update_every": 0}, "got 0"),
        ({"name": "a", "sampler_seed": -1}, "got -1"),
        ({"name": "a", "policy": WeightPolicy, "coupled": True}, "'a'"),
    ],
)
def test_arm_refuses_bad_settings_and_shows_them(arguments: dict[str, Any], shown: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        Arm(**arguments)
    assert shown in str(caught.value)


@pytest.mark.parametrize(
    ("arms", "shown"),
    [
        ([], "got none"),
        ([Arm("u"), Arm("u")], "'u' twice"),
        ([Arm("a", WeightPolicy)], "Add Arm('uniform')"),
        ([Arm("u"), Arm("p", placebo_of="gone")], "'gone'"),
        ([Arm("u"), Arm("p", placebo_of="u")], "got 'u'"),
        (
            [Arm("u"), Arm("a", WeightPolicy, update_every=10), Arm("p", placebo_of="a", update_every=20)],
            "`update_every` of placebo 'p' must be that of 'a', 10, got 20",
        ),
        (
            [Arm("u"), Arm("a", WeightPolicy), Arm("p", placebo_of="a", draws="multinomial")],
            "`draws` of placebo 'p' must be that of 'a', 'systematic'",
        ),
    ],
)
def test_check_arms_refuses_what_cannot_be_compared(arms: list[Arm], shown: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        check_arms(arms)
    assert shown in str(caught.value)


def test_a_placebo_differs_from_its_arm_in_the_windows_alone() -> None:
    arm = Arm("a", WeightPolicy, draws="multinomial", update_every=10, sampler_seed=4)
    uniform = Arm("u", sampler_seed=9)
    for placebo in (Arm("p", placebo_of="a"), Arm("p", placebo_of="a", update_every=10)):
        _, alike, same = like_what_they_imitate([uniform, placebo, arm])
        assert (alike.draws, alike.update_every, alike.sampler_seed) == ("multinomial", 10, 4)
        assert alike.placebo_of == "a"
        assert same == arm


def test_fresh_policy_never_hands_out_the_given_object() -> None:
    policy = WeightPolicy(decay=0.5)
    copy = fresh_policy(policy)
    assert copy is not policy
    assert fresh_policy(lambda: policy) is policy
    with pytest.raises(TypeError, match="got int"):
        fresh_policy(lambda: 3)  # type: ignore[arg-type, return-value]


def test_training_data_refuses_what_the_arms_decide() -> None:
    dataset = TensorDataset(torch.arange(8))
    loaders = {"held": DataLoader(dataset)}
    with pytest.raises(ValueError, match="shuffle"):
        TrainingData(dataset, loaders, 2, shuffle=True)
    with pytest.raises(ValueError, match="at least one loader"):
        TrainingData(dataset, {}, 2)
    with pytest.raises(ValueError, match="got 9"):
        TrainingData(dataset, loaders, 9)
    assert TrainingData(dataset, loaders, 3).loader(None, 0).drop_last


@pytest.mark.parametrize("arms", [Arm("uniform"), "uniform", ["uniform"], [Arm("uniform"), None]], ids=repr)
def test_what_is_no_list_of_arms_is_refused(arms: Any) -> None:
    with pytest.raises(TypeError, match=r"`arms` must be a list of Arm, got .*Write \[Arm\('uniform'\)"):
        check_arms(arms)


@pytest.mark.parametrize("seeds", [5, None, "01", (), (0, 0), (True,)], ids=repr)
def test_what_are_no_seeds_is_refused(seeds: Any) -> None:
    with pytest.raises(ValueError, match="`seeds` must hold different integers of 0 or more, got "):
        check_seeds(seeds)


def test_training_data_refuses_what_is_no_dataset_or_no_loaders() -> None:
    windows = TensorDataset(torch.arange(4))
    with pytest.raises(TypeError, match="`validation` must be a loader per source of held-out windows, got list"):
        TrainingData(windows, [DataLoader(windows)], batch_size=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`validation` must hold a DataLoader per source, got int for 'held-out'"):
        TrainingData(windows, {"held-out": 1}, batch_size=2)  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="`dataset` must be map-style, with a length and items by id, got generator"):
        TrainingData((i for i in range(4)), {"held-out": DataLoader(windows)}, batch_size=2)
