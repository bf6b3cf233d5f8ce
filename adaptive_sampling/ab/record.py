"""`RunRecord`: what one run leaves behind, as `run.json` in its folder."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from adaptive_sampling._files import write_json

RECORD_VERSION = 1
FILE_NAME = "run.json"
Status = Literal["running", "finished", "diverged", "failed"]


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
        curve: per evaluation: `step`, `tokens` (targets trained on), `train_seconds`, `eval_seconds`, `losses` and
            `targets` per validation loader, `loss` per target over all of them (nats).
        weight_edges: edges of the bins of `weight_history`, weight over mean weight.
        weight_history: per evaluation: `step` and `counts`, windows per bin.
        train_seconds: time in training, evaluations taken out.
        eval_seconds: time in evaluations.
    """

    arm: str
    seed: int
    fingerprint: str
    settings: dict[str, Any]
    status: Status = "running"
    error: str | None = None
    curve: list[dict[str, Any]] = field(default_factory=list)
    weight_edges: list[float] = field(default_factory=list)
    weight_history: list[dict[str, Any]] = field(default_factory=list)
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    version: int = RECORD_VERSION

    @property
    def finished(self) -> bool:
        """Did it reach its last step with a finite loss?"""
        return self.status == "finished"

    @property
    def tokens(self) -> list[float]:
        """Tokens trained on at each evaluation."""
        return [float(point["tokens"]) for point in self.curve]

    @property
    def losses(self) -> list[float]:
        """Held-out loss over all loaders at each evaluation; NaN where it was not finite."""
        return [math.nan if point["loss"] is None else float(point["loss"]) for point in self.curve]

    @property
    def final_loss(self) -> float:
        """Held-out loss per target over all loaders at the last evaluation."""
        return self.losses[-1]

    @property
    def final_losses(self) -> dict[str, float]:
        """The same per loader."""
        return {name: math.nan if x is None else float(x) for name, x in self.curve[-1]["losses"].items()}

    def save(self, folder: Path) -> None:
        """Write `run.json`, whole or not at all."""
        write_json(folder / FILE_NAME, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> RunRecord | None:
        """The record in `folder`, None if there is none.

        Raises:
            ValueError: if the file is not such a record.
        """
        path = folder / FILE_NAME
        if not path.exists():
            return None
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            record = cls(**raw)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is not the record of a run ({error}). Delete the folder {folder}.") from error
        if record.version != RECORD_VERSION:
            raise ValueError(
                f"{path} has version {record.version}, this package reads {RECORD_VERSION}. Choose another `out_dir`."
            )
        return record
