"""Arms of a comparison: the same training, each with its own way to choose the next window."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, cast

import torch
from torch.utils.data import DataLoader

from adaptive_sampling.weights import WeightPolicy

PolicySource = WeightPolicy | Callable[[], WeightPolicy]
Kind = Literal["uniform", "adaptive", "placebo"]


_IMITATED = ("draws", "update_every", "sampler_seed")
"""What a placebo has of the arm that it imitates, beside the policy."""


@dataclass(frozen=True)
class Arm:
    """One way to choose windows.

    | arm | draws |
    |---|---|
    | `Arm("uniform")` | a shuffle per epoch, by torch's `RandomSampler` |
    | `Arm("adaptive", policy=…)` | by the weights of the policy |
    | `Arm("placebo", placebo_of="adaptive")` | by weights of the same distribution on the wrong windows |

    The placebo runs the policy of the other arm on its own losses; one fixed permutation per seed then deals the
    weights out to windows they do not belong to. What adaptive gains over placebo comes from *which* windows are drawn,
    not from uneven draws as such.

    Attributes:
        name: shown in tables, and part of the folder name of each run.
        policy: a `WeightPolicy`, copied for each run, or a function without arguments that makes one.
        placebo_of: name of the arm whose policy runs on permuted windows. `draws`, `update_every` and `sampler_seed`
            are that arm's too; others are refused.
        draws: "systematic" or "multinomial", see `AdaptiveSampler`.
        update_every: optimizer steps between two updates of the weights.
        sampler_seed: enters the order of windows beside the run's seed. Arms share it, so that the orders of weighted
            arms agree where their weights do; another one shows how much the order alone moves the loss.
        coupled: for a uniform arm: shuffle by an `AdaptiveSampler` of equal weights in place of torch's sampler. Its
            order then agrees with that of weighted arms where their weights are equal, which takes noise out of their
            difference, the more the weaker the weights; its time then holds our overhead too.

    Raises:
        ValueError: on a name that is no folder name, on both `policy` and `placebo_of`, on settings without an effect.
    """

    name: str
    policy: PolicySource | None = None
    _: KW_ONLY
    placebo_of: str | None = None
    draws: Literal["systematic", "multinomial"] = "systematic"
    update_every: int = 50
    sampler_seed: int = 0
    coupled: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip() or set(self.name) & set('/\\:*?"<>|\0'):
            raise ValueError(f"`name` must be text that can be a folder name, got {self.name!r}. Name the arm.")
        if len(self.name.encode()) > _LONGEST_NAME:
            raise ValueError(
                f"`name` must have at most {_LONGEST_NAME} bytes, as part of a folder name, got {self.name!r}. "
                "Shorten it."
            )
        if self.policy is not None and not callable(self.policy) and _missing_methods(self.policy):
            raise ValueError(
                f"`policy` must be a WeightPolicy or a function that makes one, got {self.policy!r}. "
                "Leave it out for uniform draws."
            )
        if self.policy is not None and self.placebo_of is not None:
            raise ValueError(
                f"`placebo_of` must stand alone, got {self.placebo_of!r} beside a policy in arm {self.name!r}. "
                "A placebo runs the policy of the arm it names: leave out `policy`."
            )
        if self.draws not in ("systematic", "multinomial"):
            raise ValueError(f"`draws` must be 'systematic' or 'multinomial', got {self.draws!r}.")
        if self.kind == "uniform" and self.draws != "systematic":
            raise ValueError(
                f"`draws` must be 'systematic' without a policy, got {self.draws!r} in arm {self.name!r}. "
                "A uniform arm is a shuffle; give it a policy or leave out `draws`."
            )
        if isinstance(self.update_every, bool) or not isinstance(self.update_every, int) or self.update_every < 1:
            raise ValueError(f"`update_every` must be a positive number of steps, got {self.update_every!r}.")
        if self.coupled and self.kind != "uniform":
            raise ValueError(
                f"`coupled` must be left out of arms with weights, which always are, got {self.coupled!r} in arm "
                f"{self.name!r}."
            )
        seed = self.sampler_seed
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ValueError(f"`sampler_seed` must be an integer of 0 or more, got {seed!r}.")

    @property
    def kind(self) -> Kind:
        """What chooses the windows: "uniform", "adaptive" or "placebo"."""
        if self.placebo_of is not None:
            return "placebo"
        return "uniform" if self.policy is None else "adaptive"


def check_arms(arms: Sequence[Arm]) -> None:
    """Refuse arms that cannot be compared.

    Raises:
        TypeError: if they are no arms.
        ValueError: no arm, two of one name, no uniform arm to compare with, or a placebo of an arm that is not there.
    """
    strangers = [arms] if isinstance(arms, (Arm, str)) else [arm for arm in arms if not isinstance(arm, Arm)]
    if strangers:
        raise TypeError(f"`arms` must be a list of Arm, got {strangers[0]!r}. Write [Arm('uniform'), …].")
    if not arms:
        raise ValueError(
            "`arms` must hold at least one arm, got none. Write [Arm('uniform'), Arm('adaptive', policy=…)]."
        )
    names = [arm.name for arm in arms]
    for name in names:
        # Names are folders, and some file systems do not tell capitals apart.
        if sum(name.casefold() == other.casefold() for other in names) > 1:
            raise ValueError(
                f"`arms` must have different names, whatever their case, got {name!r} twice: {names!r}. Rename one."
            )
    if all(arm.kind != "uniform" for arm in arms):
        raise ValueError(f"`arms` must hold a uniform arm to compare with, got {names!r}. Add Arm('uniform').")
    adaptive = [arm.name for arm in arms if arm.kind == "adaptive"]
    for arm in arms:
        if arm.placebo_of is not None and arm.placebo_of not in adaptive:
            raise ValueError(
                f"`placebo_of` must name an arm with a policy, got {arm.placebo_of!r} in arm {arm.name!r}. "
                f"Arms with a policy here: {adaptive!r}."
            )
    like_what_they_imitate(arms)


def like_what_they_imitate(arms: Sequence[Arm]) -> list[Arm]:
    """The arms, placebos with the draws, the updates and the sampler seed of the arm that they imitate.

    Otherwise an arm and its placebo would differ in more than in which windows the weights belong to.

    Raises:
        ValueError: if a placebo has a setting of its own that differs.
    """
    by_name = {arm.name: arm for arm in arms}
    result = []
    for arm in arms:
        if arm.placebo_of is not None:
            other, taken = by_name[arm.placebo_of], {}
            for field in dataclasses.fields(Arm):
                if field.name in _IMITATED:
                    own, its = getattr(arm, field.name), getattr(other, field.name)
                    if own not in (field.default, its):
                        raise ValueError(
                            f"`{field.name}` of placebo {arm.name!r} must be that of {other.name!r}, {its!r}, got "
                            f"{own!r}. Leave it out."
                        )
                    taken[field.name] = its
            arm = dataclasses.replace(arm, **taken)
        result.append(arm)
    return result


def policy_source(arm: Arm, arms: Sequence[Arm]) -> PolicySource | None:
    """The policy that `arm` runs: its own, or that of the arm it is the placebo of."""
    if arm.coupled:
        return even_policy
    if arm.placebo_of is None:
        return arm.policy
    return next(other.policy for other in arms if other.name == arm.placebo_of)


def even_policy() -> WeightPolicy:
    """Equal weights, whatever the losses."""
    return WeightPolicy(power=0.0, warmup=0, cooldown=0)


def fresh_policy(source: PolicySource) -> WeightPolicy:
    """A policy that no other run has touched.

    Raises:
        TypeError: if a function made something else.
    """
    if not _missing_methods(source):
        return cast(WeightPolicy, copy.deepcopy(source))
    made = cast(Callable[[], WeightPolicy], source)()
    if missing := _missing_methods(made):
        raise TypeError(
            f"`policy` must make a WeightPolicy, or an object with its methods, got {type(made).__name__} without "
            f"{', '.join(missing)}. Return WeightPolicy(…) from it."
        )
    return made


def _missing_methods(policy: Any) -> list[str]:
    """What `AdaptiveSampling` would call in vain; a class is no policy, though it has the methods."""
    if isinstance(policy, type):
        return list(_POLICY_METHODS)
    return [name for name in _POLICY_METHODS if not hasattr(policy, name)]


_LONGEST_NAME = 200
_POLICY_METHODS = ("bind", "initial_weights", "update", "dropped", "state_dict", "load_state_dict")


class TrainingData:
    """What a run trains on and what its held-out loss is taken from.

    Args:
        dataset: map-style dataset of windows; its batches must carry `window_id`.
        validation: loader per source of held-out windows; the loss of each is reported, and their mean per target.
        batch_size: windows per step.
        find_near_copies: look for near-copies of training windows among the held-out ones, where both are windows of
            tokens (`input_ids`, or a dataset with `read`), and leave them out of the set that the verdict rests on.
        shares: share of each source in the held-out loss over all, as in natural text; default: by targets held out.
        decode: tokens → text, for windows shown in the report; default: the tokenizer that `prepare` left.
        dataloader_settings: further arguments of the train `DataLoader`. `drop_last` is True unless given, so that
            all steps of all arms see batches of one size.

    Raises:
        TypeError: if the dataset is not map-style, or `validation` no mapping of loaders.
        ValueError: on settings that the arms decide, on no validation, on a batch larger than the dataset.
    """

    def __init__(
        self,
        dataset: Any,
        validation: Mapping[str, DataLoader[Any]],
        batch_size: int,
        *,
        find_near_copies: bool = True,
        shares: Mapping[str, float] | None = None,
        decode: Callable[[Sequence[int]], str] | None = None,
        **dataloader_settings: Any,
    ) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise TypeError(
                f"`dataset` must be map-style, with a length and items by id, got {type(dataset).__name__}. "
                "A weight needs a window that can be asked for."
            )
        if not isinstance(validation, Mapping):
            raise TypeError(
                f"`validation` must be a loader per source of held-out windows, got {type(validation).__name__}. "
                "Write {'held-out': DataLoader(…)}."
            )
        for name, loader in validation.items():
            if not isinstance(loader, DataLoader):
                raise TypeError(
                    f"`validation` must hold a DataLoader per source, got {type(loader).__name__} for {name!r}. "
                    "Write {'held-out': DataLoader(…)}."
                )
        if not validation:
            raise ValueError("`validation` must hold at least one loader, got none. Write {'held-out': DataLoader(…)}.")
        owned = sorted({"sampler", "shuffle", "batch_sampler", "dataset"} & set(dataloader_settings))
        if owned:
            raise ValueError(f"`dataloader_settings` must leave {owned[0]} to the arms, got {owned!r}. Take them out.")
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or not 1 <= batch_size <= len(dataset):
            raise ValueError(
                f"`batch_size` must be between 1 and the number of windows, {len(dataset)}, got {batch_size!r}."
            )
        if shares is not None and (
            set(shares) != set(validation) or not all(0 < share < math.inf for share in shares.values())
        ):
            raise ValueError(
                f"`shares` must be a positive number for each of {sorted(validation)}, got {dict(shares)!r}. "
                "Leave it out to weigh sources by their targets."
            )
        self.dataset = dataset
        self.validation = dict(validation)
        self.find_near_copies = find_near_copies
        self.shares = None if shares is None else {name: float(shares[name]) for name in validation}
        self.decode = decode
        self.batch_size = batch_size
        self.dataloader_settings = {"drop_last": True, **dataloader_settings}

    def loader(self, sampler: Any, seed: int) -> DataLoader[Any]:
        """The train loader of one run; `seed` is that of its workers, unless the settings bring a generator."""
        # A generator of its own: making an iterator must not move the global one, or a resumed run would differ.
        settings = {"generator": torch.Generator().manual_seed(seed), **self.dataloader_settings}
        return DataLoader(self.dataset, batch_size=self.batch_size, sampler=sampler, **settings)
