"""A comparison as a YAML file: what it may hold, checked as a whole before anything is trained."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from adaptive_sampling.ab.arms import Arm, PolicySource, TrainingData, check_arms
from adaptive_sampling.ab.data_module import training_data
from adaptive_sampling.ab.imports import Imported, search_folders
from adaptive_sampling.ab.text_arms import GROUPS, NEAR_COPIES, TextAnalysis, TextPolicy
from adaptive_sampling.weights import WeightPolicy

ArmKind = Literal["uniform", "adaptive", "loss", "scarcity", "multinomial", "placebo"]

_KEYS = {
    "module", "data", "arms", "max_steps", "out", "seeds", "eval_every", "checkpoint_every", "jobs", "backend",
    "trainer", "title",
}  # fmt: skip
_ARM_KEYS = {
    "name", "kind", "policy", "placebo_of", "draws", "update_every", "sampler_seed", "scarcity", "groups",
}  # fmt: skip
_IMPORT_KEYS = {"path", "arguments"}


@dataclass(frozen=True)
class ArmSettings:
    """An arm as written, checked as far as it can be without data.

    Attributes:
        name: its name.
        kind: what chooses the windows; "adaptive" for any policy of the user's own.
        policy: settings of `WeightPolicy`, or an import path.
        scarcity: "near-copies", "none" or a `.npy` file.
        groups: "clusters", "sources", "documents", "none" or a `.npy` file.
        rest: further arguments of `Arm`.
    """

    name: str
    kind: ArmKind
    policy: Mapping[str, Any] | Imported
    scarcity: str
    groups: str
    rest: Mapping[str, Any]


@dataclass(frozen=True)
class MakeDataFrom:
    """Makes `TrainingData` of whatever an import path leads to; can be sent to other processes."""

    source: Imported

    def __call__(self) -> TrainingData:
        """A new one."""
        return training_data(self.source(), self.source.where)


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
        """Arms with policies that have no arrays yet: for checks, and for names."""
        return [_arm(settings, _bare_policy(settings)) for settings in self.arms]

    def full_arms(self) -> list[Arm]:
        """Arms with their policies; scarcity and groups are found in the text where an arm asks for them.

        Raises:
            ValueError: if an array is asked for that cannot be had.
        """
        analysis: TextAnalysis | None = None
        if any(_needs_text(settings) for settings in self.arms):
            analysis = TextAnalysis(self.data(), self.out.absolute() / "analysis")
        return [_arm(settings, _policy(settings, analysis, self.path.parent)) for settings in self.arms]


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> Config:
    """Read and check a YAML file.

    Args:
        path: the file.
        overrides: "key=value" each, the value in YAML; dots lead into mappings, as in "trainer.accelerator=cpu".

    Raises:
        ValueError: naming file, key and cure.
        OSError: if the file cannot be read.
    """
    import yaml

    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"`{path}` must be YAML, got {' '.join(str(error).split())}. Repair that line.") from None
    where = str(path)
    _check_mapping(raw, where, "a comparison")
    for override in overrides:
        _override(raw, override)
    _check_keys(raw, _KEYS, where)
    for key in ("module", "data", "arms", "max_steps"):
        if key not in raw:
            raise ValueError(f"`{key}` must be in {where}, got {sorted(raw)}. Add `{key}: …`.")
    folders = search_folders(path)
    if not isinstance(raw["arms"], list) or not raw["arms"]:
        raise ValueError(f"`arms` must be a list of arms in {where}, got {raw['arms']!r}. Write `- name: uniform`.")
    arms = tuple(_arm_settings(arm, number, where, folders) for number, arm in enumerate(raw["arms"]))
    seeds = raw.get("seeds", 3)
    settings = {key: raw[key] for key in ("eval_every", "checkpoint_every", "jobs", "backend", "title") if key in raw}
    settings |= {"max_steps": raw["max_steps"], "seeds": tuple(range(seeds)) if _is_count(seeds) else _listed(seeds)}
    if "trainer" in raw:
        _check_mapping(raw["trainer"], f"`trainer` in {where}", "arguments of lightning.Trainer")
        settings["trainer_settings"] = raw["trainer"]
    config = Config(
        path,
        _imported(raw["module"], "module", where, folders),
        MakeDataFrom(_imported(raw["data"], "data", where, folders)),
        arms,
        Path(raw.get("out", Path("runs") / path.stem)),
        settings,
    )
    check_arms(config.bare_arms)
    config.module.load()
    config.data.source.load()
    return config


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _listed(seeds: Any) -> tuple[Any, ...]:
    if not isinstance(seeds, list):
        raise ValueError(f"`seeds` must be a number of seeds or a list of them, got {seeds!r}. Write `seeds: 3`.")
    return tuple(seeds)


def _check_mapping(value: Any, where: str, what: str) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{where} must be a mapping ({what}), got {type(value).__name__}. Write `key: value` lines.")


def _check_keys(given: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            cure = f"Did you mean `{near[0]}`?" if near else f"Known keys: {', '.join(sorted(known))}."
            raise ValueError(f"{where} must hold known keys, got `{key}`. {cure}")


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


def _imported(given: Any, key: str, where: str, folders: tuple[str, ...]) -> Imported:
    if isinstance(given, str):
        return Imported(given, {}, folders, key)
    _check_mapping(given, f"`{key}` in {where}", "an import path, or `path` and `arguments`")
    _check_keys(given, _IMPORT_KEYS, f"`{key}` in {where}")
    arguments = given.get("arguments") or {}
    _check_mapping(arguments, f"`{key}.arguments` in {where}", "keyword arguments")
    if not isinstance(given.get("path"), str):
        raise ValueError(f"`{key}.path` must be an import path in {where}, got {given.get('path')!r}.")
    return Imported(given["path"], arguments, folders, key)


def _arm_settings(given: Any, number: int, where: str, folders: tuple[str, ...]) -> ArmSettings:
    place = f"arm {number + 1} in {where}"
    _check_mapping(given, place, "the settings of an arm")
    _check_keys(given, _ARM_KEYS, place)
    name = given.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"`name` must be text in {place}, got {name!r}. Give each arm a name of its own.")
    kind = given.get("kind", _implied_kind(given, name))
    if kind not in get_args(ArmKind):
        raise ValueError(
            f"`kind` must be one of {', '.join(get_args(ArmKind))} in arm {name!r} in {where}, got {kind!r}. "
            "An arm with `policy` or `placebo_of` needs none."
        )
    if (kind == "placebo") != ("placebo_of" in given):
        raise ValueError(
            f"`placebo_of` must name an arm where `kind` is placebo, and there alone, got kind {kind!r} in arm "
            f"{name!r} in {where}."
        )
    policy = given.get("policy") or {}
    if isinstance(policy, str) or (isinstance(policy, Mapping) and "path" in policy):
        policy = _imported(policy, f"policy of arm {name!r}", where, folders)
        policy.load()
    else:
        _check_mapping(policy, f"`policy` of arm {name!r} in {where}", "settings of WeightPolicy, or an import path")
        arrays = sorted({"scarcity", "groups", "priors"} & set(policy))
        if arrays:
            raise ValueError(
                f"`policy` of arm {name!r} must hold numbers in {where}, got {arrays[0]!r}, which is an array. Write "
                f"`{arrays[0]}: file.npy` beside `policy`, or make the policy by an import path."
            )
    if kind in ("uniform", "placebo") and given.get("policy"):
        raise ValueError(f"`policy` must be left out of the {kind} arm {name!r} in {where}, got {given['policy']!r}.")
    listed = {"scarcity": _scarcity(kind), "groups": "none" if kind == "scarcity" else "clusters"}
    for key, choices in (("scarcity", (NEAR_COPIES, "none")), ("groups", (*GROUPS, "none"))):
        value = given.get(key, listed[key])
        if value is None:
            value = "none"
        if value not in choices and not (isinstance(value, str) and value.endswith(".npy")):
            raise ValueError(
                f"`{key}` must be {', '.join(choices)} or a .npy file in arm {name!r} in {where}, got {value!r}."
            )
        listed[key] = value
    if isinstance(policy, Imported) and ("scarcity" in given or "groups" in given):
        raise ValueError(
            f"`scarcity` and `groups` must be left out in arm {name!r} in {where}: {policy.path!r} makes the whole "
            "policy. Put them there."
        )
    rest = {key: given[key] for key in ("placebo_of", "draws", "update_every", "sampler_seed") if key in given}
    if kind == "multinomial":
        rest.setdefault("draws", "multinomial")
    return ArmSettings(name, kind, policy, listed["scarcity"], listed["groups"], rest)


def _implied_kind(given: Mapping[str, Any], name: str) -> Any:
    if "placebo_of" in given:
        return "placebo"
    if name in get_args(ArmKind):
        return name
    return "adaptive" if given.get("policy") else None


def _scarcity(kind: Any) -> str:
    return "none" if kind in ("uniform", "placebo", "loss") else NEAR_COPIES


def _needs_text(settings: ArmSettings) -> bool:
    if settings.kind in ("uniform", "placebo") or isinstance(settings.policy, Imported):
        return False
    return settings.scarcity == NEAR_COPIES or settings.groups in GROUPS


def _policy_settings(settings: ArmSettings) -> dict[str, Any]:
    assert not isinstance(settings.policy, Imported)
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.policy.items()}
    # A power of 0 makes all scores equal: scarcity alone is left.
    return {"power": 0.0, **given} if settings.kind == "scarcity" else given


def _bare_policy(settings: ArmSettings) -> PolicySource | None:
    if settings.kind in ("uniform", "placebo"):
        return None
    if isinstance(settings.policy, Imported):
        return settings.policy
    try:
        WeightPolicy(**_policy_settings(settings))
    except (TypeError, ValueError) as error:
        raise ValueError(f"`policy` of arm {settings.name!r} must be settings of WeightPolicy, got: {error}") from None
    return TextPolicy(_policy_settings(settings))


def _policy(settings: ArmSettings, analysis: TextAnalysis | None, folder: Path) -> PolicySource | None:
    if settings.kind in ("uniform", "placebo") or isinstance(settings.policy, Imported):
        return _bare_policy(settings)
    scarcity, groups = None, None
    if settings.scarcity == NEAR_COPIES:
        assert analysis is not None
        scarcity = analysis.scarcity()
    elif settings.scarcity != "none":
        scarcity = _file(settings.scarcity, folder)
    if settings.groups in GROUPS:
        assert analysis is not None
        groups = analysis.groups(settings.groups)
    elif settings.groups != "none":
        groups = _file(settings.groups, folder)
    return TextPolicy(_policy_settings(settings), scarcity, groups)


def _file(name: str, folder: Path) -> Path:
    """The file, absolute: as named from the current folder, else from the configuration's."""
    found = next((path for path in (Path(name), folder / name) if path.exists()), None)
    if found is None:
        raise ValueError(f"`{name}` must be a file, got none in {Path.cwd()} or {folder.absolute()}. Check the path.")
    return found.absolute()


def _arm(settings: ArmSettings, policy: PolicySource | None) -> Arm:
    return Arm(settings.name, policy, **settings.rest)
