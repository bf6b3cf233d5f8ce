"""Tables of the evidence, from the results that a campaign has left, written between marks of a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from adaptive_sampling._files import atomic_writer
from adaptive_sampling.ab import Result
from adaptive_sampling.ab.outcome import COMPARISON_FILE, collect
from adaptive_sampling.ab.record import AS_SPLIT, HELD_OUT, MACRO
from adaptive_sampling.ab.tables import Table, change_text, markdown, signed

_BEGIN, _END = "<!-- {}: begin -->", "<!-- {}: end -->"


def write_page(page: Path, out: Path, scenarios: Sequence[str]) -> int:
    """Write the tables of all comparisons in `out` into a page; the text around its marks stays.

    Returns:
        How many scenarios have a result.

    Raises:
        ValueError: if the page lacks the marks, or no comparison has a run that ended.
        OSError: if the page cannot be read or written.
    """
    results = load_all(out, scenarios)
    if not results:
        raise ValueError(f"`out` must hold a comparison with a run that has ended, got {str(out)!r}. Run one first.")
    text = page.read_text(encoding="utf-8")
    text = put_between(text, "summary", markdown(summary(results)), page)
    details = "\n\n".join(detail(name, result) for name, result in results.items())
    text = put_between(text, "details", details, page)
    with atomic_writer(page) as file:
        file.write(text.encode())
    return len(results)


def load_all(out: Path, scenarios: Sequence[str]) -> dict[str, Result]:
    """Scenario → its result so far, for those that have one."""
    results = {}
    for name in scenarios:
        if (out / name / COMPARISON_FILE).exists():
            try:
                results[name] = collect(out / name)
            except ValueError:  # begun, and no run has ended yet
                continue
    return results


def put_between(text: str, mark: str, content: str, page: Path) -> str:
    """`text` with `content` between the two marks of a name.

    Raises:
        ValueError: if the marks are not there, once each and in order.
    """
    begin, end = _BEGIN.format(mark), _END.format(mark)
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"`page` must hold `{begin}` and `{end}` once, got {str(page)!r} without. Add them.")
    return pattern.sub(lambda _: f"{begin}\n\n{content}\n\n{end}", text)


def summary(results: dict[str, Result]) -> Table:
    """One row per scenario and weighted arm: loss and tokens, natural, macro and as split."""
    header = ["scenario", "arm", "seeds", "loss − uniform", "tokens, natural", "tokens, macro", "tokens, as split"]
    rows = []
    for scenario, result in results.items():
        for name, comparison in result.comparisons.items():
            if not comparison.differences:
                continue
            named = comparison.differences
            natural, macro, split = (named.get(key, named[HELD_OUT]) for key in (HELD_OUT, MACRO, AS_SPLIT))
            rows.append(
                [
                    scenario,
                    name,
                    str(len(comparison.seeds)),
                    signed(natural.loss_difference),
                    change_text(natural.token_change),
                    change_text(macro.token_change),
                    change_text(split.token_change),
                ]
            )
    return header, rows


def detail(name: str, result: Result) -> str:
    """What one comparison says: verdicts, losses and tokens per source."""
    lines = [f"### {result.title} (`{name}`)", ""]
    steps, seeds = result.max_steps, len(result.seeds)
    lines += [f"`python -m experiments.evidence --only {name}`: {steps} steps, {seeds} seeds.", ""]
    lines += [f"- {arm}: {verdict}" for arm, verdict in result.verdicts.items()]
    lines += [f"- {note}" for note in result.notes]
    lines += ["", markdown(per_source(result))]
    return "\n".join(lines)


def per_source(result: Result) -> Table:
    """Final loss minus the baseline's and tokens to the same loss, per arm and way to sum up."""
    arms = [name for name, comparison in result.comparisons.items() if comparison.differences]
    measures = list(dict.fromkeys(key for arm in arms for key in result.comparisons[arm].differences))
    rows = []
    for arm in arms:
        for key in measures:
            difference = result.comparisons[arm].differences.get(key)
            if difference is not None:
                rows.append([arm, key, signed(difference.loss_difference), change_text(difference.token_change)])
    return ["arm", "held-out text", f"loss − {result.baseline}", "tokens to same loss"], rows
