from __future__ import annotations

import pytest

from adaptive_sampling.ab.comparison import compare, verdict_text
from adaptive_sampling.ab.record import RunRecord, Timing
from adaptive_sampling.ab.statistics import Interval


def run(
    arm: str,
    seed: int,
    losses: list[float],
    status: str = "finished",
    seconds: float = 10.0,
    copies: list[float] | None = None,
) -> RunRecord:
    curve = [
        {
            "step": k + 1,
            "tokens": 100 * 2**k,
            "windows": 10 * 2**k,
            "schedule": f"s{k}",
            "loss": x,
            "losses": {"a": x, "b": x + 1.0},
            "targets": {"a": 1, "b": 1},
            "as_split": None if copies is None else {"loss": copies[k], "losses": {}, "targets": {}},
            "scarce": {"loss": x + 2.0, "targets": 1},
        }
        for k, x in enumerate(losses)
    ]
    timing = Timing(seconds, 1.0, [[k + 1, seconds * 2.0 ** (k + 1 - len(losses)), 1.0] for k in range(len(losses))])
    return RunRecord(arm, seed, "f", {}, status, curve=curve, timing=timing)  # type: ignore[arg-type]


def test_compare_of_equal_runs_is_exactly_zero() -> None:
    runs = [run("u", seed, [4.0, 3.1, 2.7 + 0.1 * seed]) for seed in range(3)]
    result = compare([run("v", r.seed, r.losses) for r in runs], runs)
    assert result.loss_difference == Interval(0.0, 0.0, 0.0, 3)
    assert result.token_change == Interval(0.0, 0.0, 0.0, 3)
    assert result.verdict == "no difference seen (0 to 0 %)"


def test_compare_pairs_by_seed() -> None:
    base = [run("u", seed, [5.0 + seed, 4.0 + seed, 3.0 + seed]) for seed in range(3)]
    arm = [run("v", seed, [4.5 + seed, 3.0 + seed, 2.0 + seed]) for seed in (2, 0, 1)]
    result = compare(arm, base)
    assert result.seeds == (0, 1, 2)
    assert result.loss_difference == Interval(-1.0, -1.0, -1.0, 3)
    assert result.differences["source b"].loss_difference.mean == -1.0
    assert result.token_change is not None
    assert result.token_change.mean == pytest.approx(-0.5)
    assert result.not_reached == ()
    assert result.verdict == "50 % fewer tokens (50 to 50)"


def test_compare_counts_seeds_that_never_reach_the_loss() -> None:
    base = [run("u", seed, [5.0, 4.0, 3.0]) for seed in range(3)]
    result = compare([run("v", seed, [5.5, 4.5, 4.0]) for seed in range(3)], base)
    assert result.not_reached == (0, 1, 2)
    assert result.verdict == "worse: 100 % more tokens (100 to 100)"
    assert [target.tokens for target in result.targets] == [None] * 3
    (remark,) = result.remarks
    assert remark.startswith("Target never reached")
    assert "seed 1: 4.0000 instead of 3.0000" in remark


def test_compare_leaves_out_and_names_what_did_not_finish() -> None:
    base = [run("u", seed, [5.0, 4.0, 3.0]) for seed in range(3)]
    arm = [run("v", 0, [5.0, 4.0, 3.0]), run("v", 1, [5.0], "diverged"), run("v", 2, [5.0, 4.0, 3.0])]
    result = compare(arm, base)
    assert (result.seeds, result.missing) == ((0, 2), (1,))
    assert result.verdict == "preliminary, 2 seeds: no difference seen (0 to 0 %); 1 seed without a finished pair"
    assert compare([run("v", 0, [], "failed")], base).verdict == "no pair of runs finished"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Interval(-0.31, -0.38, -0.24, 3), "31 % fewer tokens (24 to 38)"),
        (Interval(0.12, 0.05, 0.2, 3), "worse: 12 % more tokens (5 to 20)"),
        (Interval(0.005, -0.02, 0.03, 3), "no difference seen (−2 to +3 %)"),
        (Interval(-0.2, -0.3, -0.1, 2), "preliminary, 2 seeds: 20 % fewer tokens (10 to 30)"),
        (Interval(-0.2, None, None, 1), "preliminary, 1 seed: 20 % fewer tokens"),
    ],
)
def test_verdict_text_says_it_in_words(change: Interval, words: str) -> None:
    assert verdict_text(change) == words


def test_compare_sums_up_in_every_way() -> None:
    base = [run("u", seed, [5.0, 4.0, 3.0]) for seed in range(3)]
    arm = [run("v", seed, [4.0, 3.0, 2.5]) for seed in range(3)]
    result = compare(arm, base)
    assert set(result.differences) == {
        "held-out", "macro mean", "worst source", "scarcest tenth", "source a", "source b",
    }  # fmt: skip
    for difference in result.differences.values():
        assert difference.loss_difference.mean == -0.5
        assert difference.token_change.mean == pytest.approx(-0.5)
    assert [(t.tokens, t.steps, t.baseline_tokens) for t in result.targets] == [(200.0, 2.0, 400.0)] * 3
    assert result.seconds_change == Interval(0.0, 0.0, 0.0, 3)
    assert result.seconds_to_target is not None
    assert result.seconds_to_target.mean == pytest.approx(-0.5)
    assert "seconds_change" not in result.as_dict()


def test_compare_says_when_the_two_held_out_sets_disagree_and_follows_the_clean_one() -> None:
    base = [run("u", seed, [5.0, 4.0, 3.0], copies=[4.0, 3.0, 2.0]) for seed in range(3)]
    arm = [run("v", seed, [5.0, 4.0, 3.0], copies=[3.0, 2.0, 1.0]) for seed in range(3)]
    result = compare(arm, base)
    assert result.verdict == "no difference seen (0 to 0 %)"
    (remark,) = result.remarks
    assert "disagree: no difference seen (0 to 0 %) without near-copies" in remark
    assert "50 % fewer tokens (50 to 50) as split" in remark
    assert compare(base, base).remarks == ()


def test_compare_says_with_one_seed_when_the_held_out_sets_change_in_opposite_ways() -> None:
    base = run("u", 0, [5.0, 4.0, 3.0], copies=[4.0, 3.0, 2.0])
    better_without_copies = run("v", 0, [4.5, 3.5, 2.5], copies=[6.0, 5.0, 4.0])
    (remark, *_) = compare([better_without_copies], [base]).remarks
    assert "disagree: preliminary, 1 seed: " in remark
    assert "fewer tokens without near-copies" in remark
    assert "more tokens as split" in remark
    better_in_both = run("v", 0, [4.5, 3.5, 2.5], copies=[3.5, 2.5, 1.5])
    assert compare([better_in_both], [base]).remarks == ()


def test_compare_states_the_noise_and_how_many_more_seeds_an_effect_needs() -> None:
    base = [run("u", seed, [5.0, 4.0, 3.0]) for seed in range(3)]
    arm = [run("v", seed, [5.0, 4.0, 3.0 + 0.1 * (seed - 1)]) for seed in range(3)]
    noise = compare(arm, base).noise
    assert noise is not None
    assert noise.loss == pytest.approx(0.1)
    more = list(noise.more_seeds.values())
    assert list(noise.more_seeds) == ["5 %", "10 %", "20 %"]
    assert more == sorted(more, reverse=True)
    assert more[0] > more[-1] >= 0
    assert compare(arm[:1], base).noise is None
