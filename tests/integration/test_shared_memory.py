"""Processes that hold the sampler once draw what separate copies draw, and leave nothing behind."""

import json
import time
from pathlib import Path

import pytest
import shared_rank
import torch
from ranks import launch
from shared_rank import LAG, PER_STEP, STEPS

pytestmark = pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="looks into /dev/shm and /proc")


def run(folder, world, *options, state=None, check=True):
    folder.mkdir(exist_ok=True)
    options = [*options, *(["--state", state] if state else [])]
    outputs = launch([shared_rank.__file__, folder, *options], ranks=world, check=check)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(world)] if check else outputs


def merged(ranks, name):
    """The order over all ranks, of each step or of all draws."""
    return [i for turn in zip(*(rank[name] for rank in ranks), strict=True) for i in turn]


def steps_of(ranks):
    """Ids of every step over all ranks, in the order of the stream."""
    return [
        [i for turn in zip(*step, strict=True) for i in turn] for step in zip(*(r["ids"] for r in ranks), strict=True)
    ]


def alone(seed):
    """The steps of one process, without loader and ranks."""
    sampler = shared_rank.new_sampler(False, seed)
    shared_rank.change(sampler)
    steps = []
    for _ in range(STEPS):
        steps.append(sampler.draw(PER_STEP).tolist())
        shared_rank.change(sampler, sampler.position + LAG * PER_STEP)
    return steps


def alone_at_once(world):
    """What `world` separate copies draw whose weights change at once."""
    samplers = [shared_rank.new_sampler(False, 5) for _ in range(world)]
    for rank, sampler in enumerate(samplers):
        sampler.bind(rank, world)
    return merged([{"ids": shared_rank.change_at_once(sampler, world)} for sampler in samplers], "ids")


def nothing_left():
    """Whether names vanish, seen over the moment in which another run may hold one."""
    deadline = time.monotonic() + 20
    while list(Path("/dev/shm").glob("adaptive-sampling-*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not list(Path("/dev/shm").glob("adaptive-sampling-*"))


def check_run(folder, world, stop, savers, resumed_by):
    ranks = run(folder / "first", world, "--stop", stop)
    expected = alone(ranks[0]["seed"])
    assert steps_of(ranks) == expected
    assert merged(ranks, "at_once") == alone_at_once(world)
    assert all(len(rank["maps"]) == 1 and "(deleted)" in rank["maps"][0] for rank in ranks)
    # The same file, by its number.
    assert len({rank["maps"][0].split()[4] for rank in ranks}) == 1
    assert nothing_left()
    for saver in savers:
        # Ranks do not wait for each other here: the others may be ahead of the one that saved.
        state = folder / "first" / f"state{saver}.pt"
        for other in resumed_by:
            assert steps_of(run(folder / f"resumed-{saver}-{other}", other, state=state)) == expected[stop:]
        sampler = shared_rank.new_sampler(True)
        sampler.manage()
        sampler.load_full_state(torch.load(state, weights_only=True))
        assert shared_rank.train(sampler, 1, 0) == expected[stop:]


def test_two_ranks_draw_what_separate_copies_draw_and_three_resume(tmp_path):
    check_run(tmp_path, 2, 7, [1], [3])


@pytest.mark.soak
@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("stop", [1, 10, 14])
def test_any_ranks_draw_what_separate_copies_draw_and_any_resume(tmp_path, world, stop):
    check_run(tmp_path, world, stop, range(world), [2, 3, 4])


def test_nothing_is_left_when_a_rank_is_killed(tmp_path):
    outputs = run(tmp_path, 2, "--die", check=False)
    assert "still draws" in outputs[0]
    assert nothing_left()
