"""Arms as a file says them: checked as far as they can be without data, then given their policies."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from adaptive_sampling._arrays import open_array
from adaptive_sampling.ab._schema import check_keys, check_mapping, imported
from adaptive_sampling.ab.arms import Arm, PolicySource
from adaptive_sampling.ab.imports import Imported
from adaptive_sampling.ab.text_arms import (
    GROUPS,
    NEAR_COPIES,
    NUM_CLUSTERS,
    RECURRENCE,
    WHERE_TOKENS,
    TextAnalysis,
    TextPolicy,
)
from adaptive_sampling.weights import WeightPolicy

ArmKind = Literal["uniform", "adaptive", "loss", "scarcity", "multinomial", "placebo"]

_ARM_KEYS = {
    "name", "kind", "policy", "placebo_of", "draws", "update_every", "sampler_seed", "coupled",
    "scarcity", "groups", "priors",
}  # fmt: skip

_CHOICES = {
    "scarcity": (NEAR_COPIES, "none"),
    "groups": (*GROUPS, "none"),
    "priors": (RECURRENCE, WHERE_TOKENS, "none"),
}
"""What may stand for an array beside a file, by the key of an arm."""
_FOUND_PRIORS = (RECURRENCE, WHERE_TOKENS)


@dataclass(frozen=True)
class ArmSettings:
    """An arm as written, checked as far as it can be without data.

    Attributes:
        name: its name.
        kind: what chooses the windows; "adaptive" for any policy of the user's own.
        policy: settings of `WeightPolicy`, or an import path.
        scarcity: "near-copies", "none" or the absolute path of a `.npy` file.
        groups: "clusters", "sources", "documents", "none" or the absolute path of a `.npy` file.
        priors: "recurrence", "auto" (the same where windows are those of a token store), "none" or the absolute path of
            a `.npy` file.
        rest: further arguments of `Arm`.
        threshold: similarity from which windows are near-copies; None: read from the data.
        clusters: number of clusters.
    """

    name: str
    kind: ArmKind
    policy: Mapping[str, Any] | Imported
    scarcity: str
    groups: str
    priors: str
    rest: Mapping[str, Any]
    threshold: float | None = None
    clusters: int = NUM_CLUSTERS


def arm_settings(given: Any, number: int, where: str, folders: tuple[str, ...]) -> ArmSettings:
    """One entry of `arms`.

    Raises:
        ValueError: naming the arm, the key and the cure.
    """
    place = f"arm {number + 1} in {where}"
    check_mapping(given, place, "the settings of an arm")
    check_keys(given, _ARM_KEYS, place)
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
        policy = imported(policy, f"`policy` of arm {name!r}", where, folders)
        policy.load()
    else:
        check_mapping(policy, f"`policy` of arm {name!r} in {where}", "settings of WeightPolicy, or an import path")
        arrays = sorted({"scarcity", "groups", "priors"} & set(policy))
        if arrays:
            raise ValueError(
                f"`policy` of arm {name!r} must hold numbers in {where}, got {arrays[0]!r}, which is an array. Write "
                f"`{arrays[0]}: file.npy` beside `policy`, or make the policy by an import path."
            )
        check_keys(policy, set(inspect.signature(WeightPolicy).parameters), f"`policy` of arm {name!r} in {where}")
    if kind in ("uniform", "placebo") and given.get("policy"):
        raise ValueError(f"`policy` must be left out of the {kind} arm {name!r} in {where}, got {given['policy']!r}.")
    threshold = _only_entry(given, "scarcity", "threshold", name, where)
    if threshold is not None and not (_is_number(threshold) and 0 < threshold <= 1):
        raise ValueError(
            f"`threshold` must be above 0 and at most 1 in arm {name!r} in {where}, got {threshold!r}. Try 0.85."
        )
    clusters = _only_entry(given, "groups", "clusters", name, where)
    if clusters is not None and not (_is_number(clusters) and isinstance(clusters, int) and clusters > 0):
        raise ValueError(f"`clusters` must be a positive integer in arm {name!r} in {where}, got {clusters!r}. Try 64.")
    listed = {
        "scarcity": _scarcity(kind),
        "groups": "none" if kind == "scarcity" else "clusters",
        "priors": WHERE_TOKENS if kind in ("adaptive", "multinomial") else "none",
    }
    for key, choices in _CHOICES.items():
        value = given.get(key, listed[key])
        if value is None:
            value = "none"
        elif isinstance(value, Mapping) and key != "priors":
            value = choices[0]
        if value not in choices and not (isinstance(value, str) and value.endswith(".npy")):
            raise ValueError(
                f"`{key}` must be {', '.join(choices)} or a .npy file in arm {name!r} in {where}, got {value!r}."
            )
        listed[key] = value if value in choices or value == "none" else _file(key, value, name, where, folders)
    if isinstance(policy, Imported) and set(_CHOICES) & set(given):
        raise ValueError(
            f"`scarcity`, `groups` and `priors` must be left out in arm {name!r} in {where}: {policy.path!r} makes the "
            "whole policy. Put them there."
        )
    rest = {
        key: given[key] for key in ("placebo_of", "draws", "update_every", "sampler_seed", "coupled") if key in given
    }
    if kind == "multinomial":
        rest.setdefault("draws", "multinomial")
    number_of = NUM_CLUSTERS if clusters is None else clusters
    return ArmSettings(name, kind, policy, **listed, rest=rest, threshold=threshold, clusters=number_of)


def _only_entry(given: Mapping[str, Any], key: str, entry: str, name: str, where: str) -> Any:
    """The one setting of `scarcity` or `groups` where it is written as a mapping; None where it is not."""
    value = given.get(key)
    if not isinstance(value, Mapping):
        return None
    if set(value) != {entry}:
        raise ValueError(
            f"`{key}` must hold `{entry}` alone in arm {name!r} in {where}, got {sorted(map(str, value))}. "
            f"Write `{key}: {{{entry}: …}}`."
        )
    return value[entry]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _implied_kind(given: Mapping[str, Any], name: str) -> Any:
    if "placebo_of" in given:
        return "placebo"
    if name in get_args(ArmKind):
        return name
    return "adaptive" if given.get("policy") else None


def _scarcity(kind: Any) -> str:
    return "none" if kind in ("uniform", "placebo", "loss") else NEAR_COPIES


def needs_text(settings: ArmSettings) -> bool:
    """Does it ask for something that is found in the text?"""
    if settings.kind in ("uniform", "placebo") or isinstance(settings.policy, Imported):
        return False
    return settings.scarcity == NEAR_COPIES or settings.groups in GROUPS or settings.priors in _FOUND_PRIORS


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
    policy = TextPolicy(
        _policy_settings(settings),
        None if settings.scarcity in (NEAR_COPIES, "none") else Path(settings.scarcity),
        None if settings.groups in (*GROUPS, "none") else Path(settings.groups),
        None if settings.priors in _CHOICES["priors"] else Path(settings.priors),
    )
    try:
        policy()
    except (TypeError, ValueError) as error:
        files = [str(path) for path in policy.files.values()]
        beside = f" with {' and '.join(files)}" if files else ""
        raise ValueError(
            f"`policy` of arm {settings.name!r} must be settings of WeightPolicy{beside}, got: {error}"
        ) from None
    return policy


def _policy(settings: ArmSettings, analysis: TextAnalysis | None) -> PolicySource | None:
    bare = _bare_policy(settings)
    if not isinstance(bare, TextPolicy) or not needs_text(settings):
        return bare
    assert analysis is not None
    scarcity, groups, priors = bare.scarcity, bare.groups, bare.priors
    if settings.scarcity == NEAR_COPIES:
        scarcity = analysis.scarcity(settings.threshold)
    if settings.groups in GROUPS:
        groups = analysis.groups(settings.groups, settings.clusters)
    if settings.priors in _FOUND_PRIORS:
        priors = analysis.priors(needed=settings.priors == RECURRENCE)
    return TextPolicy(bare.settings, scarcity, groups, priors)


def _file(key: str, file: str, name: str, where: str, folders: tuple[str, ...]) -> str:
    """The file, absolute: as named from the current folder, else from the configuration's."""
    places = [Path(folder) / file for folder in reversed(folders)]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        raise ValueError(
            f"`{key}` of arm {name!r} in {where} must be a file, got {file!r}, which is not in "
            f"{' or '.join(dict.fromkeys(str(path.parent) for path in places))}. Check the path."
        )
    try:
        array = open_array(found)
    except ValueError as error:
        raise ValueError(f"`{key}` of arm {name!r} in {where}: {error}") from error
    if array.ndim != 1:
        raise ValueError(
            f"`{key}` of arm {name!r} in {where} must hold one number per window, got shape {array.shape} in "
            f"{str(found)!r}. Save an array of one dimension."
        )
    return str(found)


def bare_arm(settings: ArmSettings) -> Arm:
    """The arm with a policy that lacks what is found in the text: for checks, and for its name."""
    policy = _bare_policy(settings)
    try:
        return Arm(settings.name, policy, **settings.rest)
    except ValueError as error:
        raise ValueError(f"arm {settings.name!r} must be one that can run, got: {error}") from None


def full_arm(settings: ArmSettings, analysis: TextAnalysis | None) -> Arm:
    """The arm with its policy, and with the arrays that it asks for.

    Raises:
        ValueError: if an array is asked for that cannot be had.
    """
    return Arm(settings.name, _policy(settings, analysis), **settings.rest)
