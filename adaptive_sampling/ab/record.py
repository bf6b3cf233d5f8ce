"""`RunRecord`: what one run leaves behind, as `run.json` in its folder; its times lie apart in `time.json`.

Two runs of the same settings leave the same `run.json`, byte for byte, however often one of them was broken off; times
never are the same twice.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from adaptive_sampling._files import write_json
from adaptive_sampling.errors import clause

RECORD_VERSION = 2
FILE_NAME = "run.json"
TIME_FILE_NAME = "time.json"
Status = Literal["running", "finished", "diverged", "failed"]

HELD_OUT = "held-out"
AS_SPLIT = "as split"
MACRO = "macro mean"
WORST = "worst source"
SCARCEST = "scarcest tenth"


@dataclass
class Timing:
    """Wall-clock of a run, evaluations counted apart from training.

    Attributes:
        train_seconds: time in training so far, ours included.
        eval_seconds: time in evaluations so far.
        points: per evaluation: step, train_seconds and eval_seconds behind it.
    """

    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    points: list[list[float]] = field(default_factory=list)


@dataclass
class RunRecord:
    """One arm trained with one seed.

    Attributes:
        arm: name of the arm.
        seed: seed of parameters, order and everything else.
        fingerprint: digest of `settings`.
        settings: all that the outcome depends on.
        status: "running" is also what a run leaves that was broken off.
        error: what went wrong, for "failed" and "diverged".
        optimizers: digest of the optimizers' classes and settings; None before the first step.
        curve: per evaluation: `step`, `tokens` (targets trained on), `windows` (trained on), `schedule` (digest of all
            learning rates and batch sizes so far), and the held-out losses in nats per target: `losses` and `targets`
            per source and `loss` over all, without near-copies of training text where these could be found;
            `as_split`, the same with them, None where there are none; `scarce`, `loss` and `targets` on the scarcest
            tenth.
        weight_edges: edges of the bins of `weight_history`, weight over mean weight.
        weight_history: per evaluation: `step` and `counts`, windows per bin.
        draw_counts: windows drawn 0, 1, 2, … times; the last entry counts all that were drawn more often.
        extremes: `most` and `least` drawn windows: `id`, `draws`, `source`, `text`.
        timing: wall-clock.
    """

    arm: str
    seed: int
    fingerprint: str
    settings: dict[str, Any]
    status: Status = "running"
    error: str | None = None
    optimizers: str | None = None
    curve: list[dict[str, Any]] = field(default_factory=list)
    weight_edges: list[float] = field(default_factory=list)
    weight_history: list[dict[str, Any]] = field(default_factory=list)
    draw_counts: list[int] = field(default_factory=list)
    extremes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    version: int = RECORD_VERSION
    timing: Timing = field(default_factory=Timing)

    @property
    def finished(self) -> bool:
        """Did it reach its last step with a finite loss?"""
        return self.status == "finished"

    @property
    def tokens(self) -> list[float]:
        """Tokens trained on at each evaluation."""
        return [float(point["tokens"]) for point in self.curve]

    @property
    def steps(self) -> list[float]:
        """Optimizer steps at each evaluation."""
        return [float(point["step"]) for point in self.curve]

    @property
    def seconds(self) -> list[float]:
        """Seconds of training at each evaluation; empty where times are not known."""
        return [point[1] for point in self.timing.points] if len(self.timing.points) == len(self.curve) else []

    @property
    def losses(self) -> list[float]:
        """Held-out loss over all sources at each evaluation; NaN where it was not finite."""
        return self.measure(HELD_OUT) or []

    @property
    def final_loss(self) -> float:
        """Held-out loss per target over all sources at the last evaluation."""
        return self.losses[-1]

    @property
    def final_losses(self) -> dict[str, float]:
        """The same per source."""
        return {name: _number(x) for name, x in self.curve[-1]["losses"].items()}

    @property
    def measures(self) -> list[str]:
        """Names that `measure` knows for this run, sources last."""
        if not self.curve:
            return []
        sources = list(self.curve[-1]["losses"])
        names = [HELD_OUT]
        if self.curve[-1].get("as_split"):
            names.append(AS_SPLIT)
        if len(sources) > 1:
            names += [MACRO, WORST]
        if self.curve[-1].get("scarce"):
            names.append(SCARCEST)
        return names + [f"source {source}" for source in sources if len(sources) > 1]

    def measure(self, name: str) -> list[float] | None:
        """One way to sum up the held-out losses, at each evaluation; None if this run has no such measure."""
        if not self.curve or name not in self.measures:
            return None
        return [self._value(name, point) for point in self.curve]

    @staticmethod
    def _value(name: str, point: dict[str, Any]) -> float:
        losses = [_number(x) for x in point["losses"].values()]
        if name == HELD_OUT:
            return _number(point["loss"])
        if name == AS_SPLIT:
            return _number(point["as_split"]["loss"])
        if name == MACRO:
            return math.fsum(losses) / len(losses)
        if name == WORST:
            return math.nan if any(math.isnan(x) for x in losses) else max(losses)
        if name == SCARCEST:
            return _number(point["scarce"]["loss"])
        return _number(point["losses"][name.removeprefix("source ")])

    def as_dict(self) -> dict[str, Any]:
        """All but the times, as JSON values."""
        values = asdict(self)
        del values["timing"]
        return values

    def save(self, folder: Path) -> None:
        """Write `run.json` and `time.json`, each whole or not at all."""
        write_json(folder / TIME_FILE_NAME, asdict(self.timing))
        write_json(folder / FILE_NAME, self.as_dict())

    @classmethod
    def from_dict(cls, raw: dict[str, Any], timing: dict[str, Any] | None = None) -> RunRecord:
        """Counterpart of `as_dict`.

        Raises:
            ValueError: if the version is another one.
            TypeError: if fields are unknown or missing.
        """
        if raw.get("version") != RECORD_VERSION:
            raise ValueError(f"version {raw.get('version')!r}, this package reads {RECORD_VERSION}")
        return cls(**raw, timing=Timing(**(timing or {})))

    @classmethod
    def load(cls, folder: Path) -> RunRecord | None:
        """The record in `folder`, None if there is none.

        Raises:
            ValueError: if the file is not such a record.
        """
        path, times = folder / FILE_NAME, folder / TIME_FILE_NAME
        if not path.exists():
            return None
        try:
            timing = json.loads(times.read_text(encoding="utf-8")) if times.exists() else None
            return cls.from_dict(json.loads(path.read_text(encoding="utf-8")), timing)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} must be the record of a run, got {clause(error)}. "
                f"Choose another output folder, or delete {folder}."
            ) from error


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
