"""An arm against the baseline, paired by seed: fixed budget and fixed target, on every way to sum up held-out loss.

Two runs of one seed start from the same parameters, so their difference has far less noise than either loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from adaptive_sampling.ab.record import AS_SPLIT, HELD_OUT, RunRecord
from adaptive_sampling.ab.statistics import (
    MIN_SEEDS,
    Interval,
    amount_ratio,
    mean_interval,
    reach,
    seeds_needed,
    spread,
)

EFFECTS = (0.05, 0.1, 0.2)
"""Shares of tokens saved for which the report says how many seeds would show them."""


@dataclass(frozen=True)
class Difference:
    """An arm against the baseline on one measure.

    Attributes:
        loss_difference: final loss, arm minus baseline, nats per target.
        token_change: tokens needed for the same loss over the baseline's, minus 1; the mean is geometric.
        not_reached: seeds in which the arm ended above the baseline's final loss.
    """

    loss_difference: Interval
    token_change: Interval
    not_reached: tuple[int, ...]


@dataclass(frozen=True)
class Target:
    """What an arm needed to reach the baseline's final held-out loss, for one seed.

    Attributes:
        seed: the seed.
        loss: the baseline's final held-out loss.
        tokens: tokens at which the arm's curve reaches it; None: never.
        steps: likewise in optimizer steps.
        baseline_tokens: tokens at which the baseline's own curve first reaches it.
        ended_at: the arm's final loss.
    """

    seed: int
    loss: float
    tokens: float | None
    steps: float | None
    baseline_tokens: float
    ended_at: float


@dataclass(frozen=True)
class Noise:
    """How much the comparison scatters from seed to seed, and what that means for further seeds.

    Attributes:
        loss: standard deviation of the paired differences in final loss, nats per target.
        tokens: standard deviation of the paired changes in tokens, as a share.
        more_seeds: share of tokens saved → further seeds with which it would be seen four times in five.
    """

    loss: float
    tokens: float
    more_seeds: Mapping[str, int]


@dataclass(frozen=True)
class Comparison:
    """An arm against the baseline over the seeds that finished in both.

    Attributes:
        arm: name of the arm.
        baseline: name of the arm it is compared with.
        seeds: seeds that finished in both.
        missing: seeds that are not in `seeds` because a run failed, diverged or is not done.
        differences: name of a measure → the arm against the baseline on it; empty without a pair.
        targets: per seed, what the baseline's final loss took.
        noise: scatter over seeds; None for fewer than two.
        seconds_change: training time over the baseline's, minus 1; None where times are not known.
        seconds_to_target: training time to the same loss over the baseline's, minus 1.
        verdict: one phrase, from the held-out text without near-copies where these were found.
        remarks: what must be known beside the verdict.
    """

    arm: str
    baseline: str
    seeds: tuple[int, ...]
    missing: tuple[int, ...]
    differences: Mapping[str, Difference]
    targets: tuple[Target, ...]
    noise: Noise | None
    seconds_change: Interval | None
    seconds_to_target: Interval | None
    verdict: str
    remarks: tuple[str, ...]

    @property
    def loss_difference(self) -> Interval | None:
        """Final held-out loss, arm minus baseline; None without a pair."""
        return self.differences[HELD_OUT].loss_difference if self.differences else None

    @property
    def token_change(self) -> Interval | None:
        """Tokens needed for the same held-out loss over the baseline's, minus 1; None without a pair."""
        return self.differences[HELD_OUT].token_change if self.differences else None

    @property
    def not_reached(self) -> tuple[int, ...]:
        """Seeds in which the arm ended above the baseline's final held-out loss."""
        return self.differences[HELD_OUT].not_reached if self.differences else ()

    def as_dict(self) -> dict[str, Any]:
        """All but the times, as JSON values."""
        values = asdict(self)
        for name in ("seconds_change", "seconds_to_target"):
            del values[name]
        return values


Pair = tuple[RunRecord, RunRecord]


def compare(arm: Sequence[RunRecord], baseline: Sequence[RunRecord], *, name: str = "") -> Comparison:
    """Compare the runs of one arm with those of the baseline, seed by seed.

    Args:
        arm: runs of the arm.
        baseline: runs of the baseline.
        name: of the arm, where it has no run yet.

    Raises:
        ValueError: without a run of the baseline, or without a name.
    """
    if not baseline or not (arm or name):
        raise ValueError("`arm` and `baseline` must hold at least one run each, got none.")
    reference = {run.seed: run for run in baseline}
    pairs = [
        (run, reference[run.seed])
        for run in sorted(arm, key=lambda run: run.seed)
        if run.finished and run.seed in reference and reference[run.seed].finished
    ]
    seeds = tuple(run.seed for run, _ in pairs)
    missing = tuple(sorted({run.seed for run in [*arm, *baseline]} - set(seeds)))
    names = (arm[0].arm if arm else name, baseline[0].arm)
    if not pairs:
        return Comparison(*names, (), missing, {}, (), None, None, None, "no pair of runs finished", ())
    differences = {
        measure: difference
        for measure in pairs[0][0].measures
        if (difference := _difference(pairs, measure)) is not None
    }
    targets = tuple(_target(run, base) for run, base in pairs)
    timed = [(run, base) for run, base in pairs if run.seconds and base.seconds]
    verdict = verdict_text(differences[HELD_OUT].token_change, missing=len(missing))
    return Comparison(
        *names,
        seeds,
        missing,
        differences,
        targets,
        _noise(pairs),
        mean_interval([run.seconds[-1] / base.seconds[-1] - 1.0 for run, base in timed]) if timed else None,
        _change([amount_ratio(r.losses, b.losses, r.seconds, b.seconds) for r, b in timed]) if timed else None,
        verdict,
        (*_disagreement(differences), *_never_reached(targets)),
    )


def _change(ratios: Sequence[float]) -> Interval:
    """Interval of ratios − 1, averaged as logarithms, so that halves and doubles cancel."""
    logs = mean_interval([math.log(ratio) for ratio in ratios])
    low, high = (None if end is None else math.expm1(end) for end in (logs.low, logs.high))
    return Interval(math.expm1(logs.mean), low, high, logs.count)


def _difference(pairs: Sequence[Pair], measure: str) -> Difference | None:
    curves = [(run, run.measure(measure), base, base.measure(measure)) for run, base in pairs]
    known = [(run, mine, base, its) for run, mine, base, its in curves if mine is not None and its is not None]
    if len(known) < len(pairs) or any(math.isnan(mine[-1]) or math.isnan(its[-1]) for _, mine, _, its in known):
        return None
    return Difference(
        mean_interval([mine[-1] - its[-1] for _, mine, _, its in known]),
        _change([amount_ratio(mine, its, run.tokens, base.tokens) for run, mine, base, its in known]),
        tuple(run.seed for run, mine, _, its in known if mine[-1] > its[-1]),
    )


def _target(run: RunRecord, base: RunRecord) -> Target:
    loss = base.final_loss
    own = reach(base.tokens, base.losses, loss)
    assert own is not None
    return Target(
        run.seed,
        loss,
        reach(run.tokens, run.losses, loss),
        reach(run.steps, run.losses, loss),
        own,
        run.final_loss,
    )


def _noise(pairs: Sequence[Pair]) -> Noise | None:
    loss = spread([run.final_loss - base.final_loss for run, base in pairs])
    logs = spread([math.log(amount_ratio(r.losses, b.losses, r.tokens, b.tokens)) for r, b in pairs])
    if loss is None or logs is None:
        return None
    return Noise(
        loss,
        math.expm1(logs),
        {
            f"{effect:.0%}".replace("%", " %"): max(0, seeds_needed(logs, -math.log1p(-effect)) - len(pairs))
            for effect in EFFECTS
        },
    )


def _direction(change: Interval) -> str:
    seen = percent(change.mean) != "0" if change.low is None else change.excludes_zero
    if not seen:
        return "no difference"
    return "fewer" if change.mean < 0 else "more"


def _disagreement(differences: Mapping[str, Difference]) -> tuple[str, ...]:
    """A remark where the two held-out sets say different things."""
    if AS_SPLIT not in differences:
        return ()
    clean, whole = (differences[name].token_change for name in (HELD_OUT, AS_SPLIT))
    said = {_direction(clean), _direction(whole)}
    # Of one seed there is no interval: a change against none may be noise, two of other signs are worth a look.
    if len(said) == 1 or (clean.low is None and said != {"fewer", "more"}):
        return ()
    return (
        f"The two held-out sets disagree: {verdict_text(clean)} without near-copies of training text, "
        f"{verdict_text(whole)} as split. The second also rewards remembering copies, so the first carries the "
        "verdict.",
    )


def _never_reached(targets: Sequence[Target]) -> tuple[str, ...]:
    never = [target for target in targets if target.tokens is None]
    if 2 * len(never) <= len(targets):
        return ()  # noise does that to one seed or the other; the table of targets names it
    ends = ", ".join(f"seed {t.seed}: {t.ended_at:.4f} instead of {t.loss:.4f}" for t in never)
    return (f"Target never reached: the arm ended above the baseline's final loss ({ends}).",)


def percent(value: float) -> str:
    """A share as a signed whole percentage, with a real minus sign.

    Example:
        >>> percent(-0.021), percent(0.0), percent(0.031)
        ('−2', '0', '+3')
    """
    text = f"{100.0 * value:+.0f}".replace("-", "−")
    return "0" if text in ("+0", "−0") else text


def verdict_text(change: Interval, *, missing: int = 0) -> str:
    """The verdict on a change in tokens, in words.

    Example:
        >>> verdict_text(Interval(-0.31, -0.38, -0.24, 3))
        '31 % fewer tokens (24 to 38)'
        >>> verdict_text(Interval(0.005, -0.02, 0.03, 3))
        'no difference seen (−2 to +3 %)'
    """
    direction = "fewer" if change.mean < 0 else "more"
    if change.low is None or change.high is None:
        text = f"{abs(100 * change.mean):.0f} % {direction} tokens"
    elif change.excludes_zero:
        ends = sorted((abs(100 * change.low), abs(100 * change.high)))
        worse = "worse: " if change.mean > 0 else ""
        text = f"{worse}{abs(100 * change.mean):.0f} % {direction} tokens ({ends[0]:.0f} to {ends[1]:.0f})"
    else:
        text = f"no difference seen ({percent(change.low)} to {percent(change.high)} %)"
    if change.count < MIN_SEEDS:
        text = f"preliminary, {change.count} seed{'s' if change.count > 1 else ''}: {text}"
    return f"{text}; {missing} seed{'s' if missing > 1 else ''} without a finished pair" if missing else text
