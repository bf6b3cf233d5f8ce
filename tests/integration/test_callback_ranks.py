"""Several gloo ranks under the callback: as one process, resumed exactly, alike whatever one rank does."""

import json

import callback_rank
import numpy as np
import pytest
import torch
from callback_rank import EPOCHS, SIZE, STOPS
from ranks import launch

pytestmark = pytest.mark.filterwarnings("ignore:no learned weight can count")


def global_order(ranks):
    """Ids over all ranks, in the order of the stream."""
    return [i for steps in zip(*ranks, strict=True) for turn in zip(*steps, strict=True) for i in turn]


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.soak)])
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"ranks{request.param}")
    launch([callback_rank.__file__, folder], ranks=request.param, timeout=600)
    results = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(request.param)]
    return folder, request.param, {name: [rank[name] for rank in results] for name in results[0]}


@pytest.fixture(scope="module")
def single():
    return callback_rank.run(1)


def assert_equal_ranks(ranks):
    for rank in ranks[1:]:
        assert rank["weights"] == ranks[0]["weights"]
        assert rank["observations"] == ranks[0]["observations"]


def test_ranks_draw_and_weigh_as_one_process_does(trained, single):
    _, world, results = trained
    ranks = results["unbroken"]
    assert [rank["error"] for rank in ranks] == [None] * world
    assert_equal_ranks(ranks)
    merged = global_order([rank["ids"] for rank in ranks])
    # With four ranks the last batches differ: 42 windows are 10 per rank and epoch.
    if SIZE % world == 0:
        assert merged == [i for step in single["ids"] for i in step]
        assert ranks[0]["weights"] == single["weights"]
        assert ranks[0]["scores"] == single["scores"]
    assert len(merged) == EPOCHS * (SIZE - SIZE % world)
    assert len(set(ranks[0]["weights"])) > 5


@pytest.mark.parametrize("stop", STOPS)
def test_losses_of_all_ranks_survive_a_checkpoint(trained, stop):
    _, world, results = trained
    unbroken, resumed = results["unbroken"], results[f"resumed {stop}"]
    for rank in range(world):
        assert resumed[rank]["ids"] == unbroken[rank]["ids"][stop:]
        assert resumed[rank]["weights"] == unbroken[rank]["weights"]
    # Rank 0's policy is the one that counts.
    assert resumed[0]["scores"] == unbroken[0]["scores"]
    assert resumed[0]["observations"] == unbroken[0]["observations"]


def test_state_beside_a_checkpoint_is_written_by_one_rank_and_read_by_all(trained):
    folder, world, results = trained
    assert sorted(path.suffix for path in (folder / "beside").iterdir()) == [".ckpt", ".safetensors"]
    for rank in range(world):
        unbroken, resumed = results["unbroken"][rank], results["resumed from two files"][rank]
        assert resumed["error"] is None
        assert resumed["ids"] == unbroken["ids"][7:]
        assert resumed["weights"] == unbroken["weights"]


def test_another_number_of_ranks_goes_on_in_the_same_order(trained, single):
    folder, world, _ = trained
    if SIZE % world:
        pytest.skip("an epoch of four ranks has two draws less")
    resumed = callback_rank.run(1, ckpt_path=folder / "step-7.ckpt")
    assert resumed["ids"] == single["ids"][7:]
    assert resumed["weights"] == single["weights"]


def test_a_checkpoint_of_ranks_holds_a_part_for_each_in_plain_types(trained):
    folder, world, _ = trained
    state = torch.load(folder / "step-5.ckpt", weights_only=True)["callbacks"]
    observed = next(value for key, value in state.items() if "AdaptiveSampling" in key)["observed"]
    assert [len(part["ids"]) for part in observed] == [8 // world] * world
    assert all(part["ids"].dtype is torch.int64 for part in observed)


def test_one_rank_with_odd_losses_is_left_out_and_no_rank_waits(trained):
    _, _, results = trained
    ranks = results["odd"]
    assert [rank["error"] for rank in ranks] == [None] * len(ranks)
    assert_equal_ranks(ranks)
    assert ranks[0]["observations"] < results["unbroken"][0]["observations"]
    assert any("left out of the weights" in w for w in ranks[1]["warnings"])


def test_real_losses_agree_with_one_process_until_the_first_update_and_then_closely(trained):
    _, world, results = trained
    ranks = results["real losses"]
    single = callback_rank.run(1, make_module=lambda: callback_rank.Module(fixed=False), epochs=1)
    first_update = 4
    if SIZE % world == 0:
        assert global_order([rank["ids"][:first_update] for rank in ranks]) == [
            i for step in single["ids"][:first_update] for i in step
        ]
        # One update in one epoch: the scores are the first losses.
        np.testing.assert_allclose(ranks[0]["scores"], single["scores"], rtol=1e-5, atol=1e-5)


def test_weights_that_came_apart_are_found_at_a_full_pass_and_healed(trained):
    _, world, results = trained
    ranks = results["perturbed"]
    assert [rank["error"] for rank in ranks] == [None] * world
    for rank in ranks:
        said = [w for w in rank["warnings"] if "were not those of rank 0" in w]
        assert len(said) == 1
        assert "weights of ranks [1]" in said[0]
    assert_equal_ranks(ranks)


def test_ranks_whose_datasets_differ_are_told_the_same_before_the_first_step(trained):
    _, world, results = trained
    sizes = [SIZE] * (world - 1) + [SIZE - 1]
    for rank in results["one window fewer on the last"]:
        assert f"all ranks must have the same number of windows, got {sizes} by rank" in rank["error"]
        assert rank["ids"] == []


def test_ranks_of_different_orders_are_told_the_same_before_the_first_step(trained):
    _, world, results = trained
    for name, message in {
        "own seeds": f"all ranks must have the same seed (-1: none given), got {[5 + r for r in range(world)]} by rank",
        "own weights": "same weights set before the training (here their checksum), got",
        "drawn on one alone": f"same number of windows drawn already, got {[*range(world)]} by rank",
    }.items():
        for rank in results[name]:
            assert message in rank["error"]
            assert rank["ids"] == []


def test_a_batch_sampler_is_refused_with_the_cure_on_every_rank(trained):
    _, _, results = trained
    for rank in results["batch sampler"]:
        assert "MisconfigurationException" in rank["error"]
        assert "use_distributed_sampler=False" in rank["error"]
        assert rank["ids"] == []
