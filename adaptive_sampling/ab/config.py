"""A comparison as a YAML file: what it may hold, checked as a whole before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_sampling.ab._schema import check_keys, check_mapping, imported
from adaptive_sampling.ab.arm_config import ArmSettings, arm_settings, bare_arm, full_arm, needs_text
from adaptive_sampling.ab.arms import Arm, TrainingData
from adaptive_sampling.ab.data_module import training_data
from adaptive_sampling.ab.imports import Imported, search_folders
from adaptive_sampling.ab.policy_fit import fitting_digest
from adaptive_sampling.ab.settings import check_settings
from adaptive_sampling.ab.text_arms import TextAnalysis
from adaptive_sampling.errors import clause

_KEYS = {
    "module", "data", "arms", "max_steps", "out", "seeds", "eval_every", "checkpoint_every", "jobs", "backend",
    "trainer", "title",
}  # fmt: skip


@dataclass(frozen=True)
class MakeDataFrom:
    """Makes `TrainingData` of whatever an import path leads to; can be sent to other processes."""

    source: Imported

    def __call__(self) -> TrainingData:
        """A new one."""
        return training_data(self.source(), self.source)


@dataclass(frozen=True)
class Config:
    """A comparison as a file says it.

    Attributes:
        path: the file.
        module: makes the LightningModule.
        data: makes the `TrainingData`.
        arms: the arms, in the order of the file.
        out: folder of the runs.
        settings: further arguments of `run_ab`.
    """

    path: Path
    module: Imported
    data: MakeDataFrom
    arms: tuple[ArmSettings, ...]
    out: Path
    settings: Mapping[str, Any]

    @property
    def bare_arms(self) -> list[Arm]:
        """Arms with policies that lack what is found in the text: for checks, and for names."""
        return [bare_arm(settings) for settings in self.arms]

    def full_arms(self) -> list[Arm]:
        """Arms with their policies; scarcity and groups are found in the text where an arm asks for them.

        Raises:
            ValueError: if an array is asked for that cannot be had.
            UserCodeError: if a function that the file names raises.
        """
        analysis: TextAnalysis | None = None
        if any(needs_text(settings) for settings in self.arms):
            data = self.data()
            for arm in self.bare_arms:  # before the text is looked at, which takes long
                if arm.policy is not None:
                    fitting_digest(arm, arm.policy, len(data.dataset))
            analysis = TextAnalysis(data, self.out.absolute() / "analysis")
        return [full_arm(settings, analysis) for settings in self.arms]


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file and check all of it that can be checked without calling what it names.

    Args:
        path: the file.
        overrides: "key=value" each, the value in YAML; dots lead into mappings, as in "trainer.accelerator=cpu".

    Raises:
        ValueError: naming key and cure.
        UserCodeError: if a module that it names cannot be imported.
        OSError: if the file cannot be read.
    """
    import yaml

    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"`{path}` must be YAML, got {clause(error)}. Repair that line.") from None
    where = str(path)
    check_mapping(raw, where, "a comparison")
    for override in overrides:
        _override(raw, override)
    check_keys(raw, _KEYS, where)
    for key in ("module", "data", "arms", "max_steps"):
        if key not in raw:
            raise ValueError(f"`{key}` must be in {where}, got {sorted(raw)}. Add `{key}: …`.")
    folders = search_folders(path)
    if not isinstance(raw["arms"], list) or not raw["arms"]:
        raise ValueError(f"`arms` must be a list of arms in {where}, got {raw['arms']!r}. Write `- name: uniform`.")
    arms = tuple(arm_settings(arm, number, where, folders) for number, arm in enumerate(raw["arms"]))
    settings = {key: raw[key] for key in ("eval_every", "checkpoint_every", "jobs", "backend", "title") if key in raw}
    settings |= {"max_steps": raw["max_steps"], "seeds": _listed(raw.get("seeds", 3))}
    if "trainer" in raw:
        check_mapping(raw["trainer"], f"`trainer` in {where}", "arguments of lightning.Trainer")
        settings["trainer_settings"] = raw["trainer"]
    config = Config(
        path,
        imported(raw["module"], "`module`", where, folders),
        MakeDataFrom(imported(raw["data"], "`data`", where, folders)),
        arms,
        Path(_out(raw.get("out", str(Path("runs") / path.stem)))).expanduser(),
        settings,
    )
    check_settings(config.bare_arms, **settings, trainer_key="trainer")
    config.module.load()
    config.data.source.load()
    return config


def _out(given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise ValueError(f"`out` must be the path of a folder, got {given!r}. Write for example `out: runs/my_gpt`.")
    return given


def _listed(seeds: Any) -> tuple[Any, ...]:
    if isinstance(seeds, int) and not isinstance(seeds, bool) and seeds > 0:
        return tuple(range(seeds))
    if not isinstance(seeds, list):
        raise ValueError(f"`seeds` must be a number of seeds or a list of them, got {seeds!r}. Write `seeds: 3`.")
    return tuple(seeds)


def _override(raw: Any, text: str) -> None:
    import yaml

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"`--set` must be KEY=VALUE, got {text!r}. Write for example --set max_steps=200.")
    *outer, last = key.split(".")
    for number, part in enumerate(outer):
        if isinstance(raw.get(part), str):  # an import path written short
            raw[part] = {"path": raw[part]}
        raw = raw.setdefault(part, {})
        if not isinstance(raw, dict):
            raise ValueError(f"`--set` must lead to a mapping, got {'.'.join(outer[: number + 1])!r} in {text!r}.")
    try:
        raw[last] = yaml.safe_load(value)
    except yaml.YAMLError:
        raise ValueError(f"`--set` must have a YAML value, got {text!r}. Put quotes around text.") from None
