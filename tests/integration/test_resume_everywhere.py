"""Saved at every step of a two-epoch run, resumed with any number of workers and ranks: the same global order."""

import json
from dataclasses import asdict

import pytest
import resume_rank
import torch
from ranks import launch
from resume_rank import EPOCHS, LAG, PER_STEP, SIZE, STEPS, Job

from adaptive_sampling import AdaptiveSampler

WORKERS = (0, 2)
# The start, the first steps of both epochs, both sides of the end of an epoch, the last step.
SOME_STOPS = (0, 1, 6, 7, 8, STEPS - 1)


def order_of_steps(ids_per_rank):
    """Ids of every step over all ranks, in the order of the stream."""
    return [[i for turn in zip(*ranks, strict=True) for i in turn] for ranks in zip(*ids_per_rank, strict=True)]


def run_jobs(jobs, world, folder):
    """Job -> ids per step over all ranks; one rank runs in this process, without a process group."""
    if world == 1:
        return {job.name: resume_rank.run(job) for job in jobs}
    folder.mkdir()
    (folder / "jobs.json").write_text(json.dumps([asdict(job) for job in jobs]))
    launch([resume_rank.__file__, folder / "jobs.json", folder], ranks=world, timeout=900)
    ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(world)]
    return {job.name: order_of_steps([rank[job.name] for rank in ranks]) for job in jobs}


def unbroken_order(seed):
    """Steps of a run without loader, workers and ranks."""
    sampler = AdaptiveSampler(SIZE, block_size=PER_STEP, seed=seed)
    steps = []
    for _ in range(EPOCHS):
        for start in range(0, SIZE, PER_STEP):
            steps.append(sampler.draw(min(PER_STEP, SIZE - start)).tolist())
            resume_rank.change_weights(sampler)
    return steps


def check_matrix(folder, worlds, stops, workers_before_and_after):
    """Both numbers of ranks save at every step; each resumes what both saved."""

    def state(name, stop):
        return f"{folder / name}-{stop}.pt"

    def saving(world):
        return [Job(f"{world}-{n}", n, save_as=str(folder / f"{world}-{n}")) for n in WORKERS]

    def resuming(saved_by):
        return [
            Job(f"{job.name} {stop} {after}", after, state=state(job.name, stop))
            for world in saved_by
            for job in saving(world)
            for stop in stops
            for after in WORKERS
            if (job.workers, after) in workers_before_and_after
        ]

    first, second = worlds
    got = {first: run_jobs(saving(first), first, folder / "1")}
    got[second] = run_jobs(saving(second) + resuming(worlds), second, folder / "2")
    got[first] |= run_jobs(resuming(worlds), first, folder / "3")
    expected = {}
    for world in worlds:
        for job in saving(world):
            seed = torch.load(state(job.name, 0), weights_only=True)["stream"]["seed"]
            expected[job.name] = unbroken_order(seed)
            assert got[world][job.name] == expected[job.name], f"unbroken run with {job.name} (ranks-workers)"
    # Weights do change the order: what is resumed is not a plain shuffle.
    second_epochs = [[i for step in steps[STEPS // 2 :] for i in step] for steps in expected.values()]
    assert all(sorted(ids) != list(range(SIZE)) for ids in second_epochs)
    for world in worlds:
        for job in resuming(worlds):
            name, stop, after = job.name.split()
            where = f"saved by {name} (ranks-workers) at step {stop}, resumed by {world} ranks, {after} workers"
            assert got[world][job.name] == expected[name][int(stop) :], where


def test_lag_covers_what_two_workers_fetch():
    assert LAG >= 2 * 1 + 2


def test_some_steps_resume_on_one_and_two_ranks_with_and_without_workers(tmp_path):
    check_matrix(tmp_path, (1, 2), SOME_STOPS, {(2, 0)})


def test_other_steps_resume_with_two_workers(tmp_path):
    states = tmp_path / "saved"
    resume_rank.run(Job("save", 0, save_as=str(states)))
    for stop in (1, STEPS // 2, STEPS // 2 + 2):
        seed = torch.load(f"{states}-{stop}.pt", weights_only=True)["stream"]["seed"]
        assert resume_rank.run(Job("resume", 2, state=f"{states}-{stop}.pt")) == unbroken_order(seed)[stop:]


@pytest.mark.soak
@pytest.mark.parametrize("worlds", [(1, 2), (2, 4), (1, 4)], ids=str)
def test_every_step_resumes_on_any_ranks_and_workers(tmp_path, worlds):
    check_matrix(tmp_path, worlds, range(STEPS + 1), {(a, b) for a in WORKERS for b in WORKERS})
