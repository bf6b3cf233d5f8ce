"""What is known of windows before training: multipliers for the policy, and windows left out with the reason.

No text is deleted: an excluded window has weight 0 and its id stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.windows._ids import checked_id
from adaptive_sampling.windows.dataset import WindowDataset
from adaptive_sampling.windows.gather import IGNORED_LABEL
from adaptive_sampling.windows.numbers import NumberTokens, has_number_list

Float64 = NDArray[np.float64]
_BATCH_TOKENS = 1 << 20


@dataclass(frozen=True)
class Prior:
    """A multiplier per window, for `WeightPolicy(priors=prior.factors)`.

    Attributes:
        name: What it looks at.
        factors: float64 [N], finite and not negative; 0 excludes a window.
        reasons: Why windows are excluded: reason -> bool [N].
    """

    name: str
    factors: Float64
    reasons: dict[str, NDArray[np.bool_]]

    @property
    def num_excluded(self) -> int:
        """Number of windows with factor 0."""
        return int((self.factors == 0).sum())

    def why(self, window_id: int) -> list[str]:
        """The reasons for which a window is excluded; empty if it is not.

        Raises:
            IndexError, TypeError: for an id that is none.
        """
        at = checked_id(window_id, len(self.factors))
        return [reason for reason, excluded in self.reasons.items() if excluded[at]]

    def __mul__(self, other: Prior) -> Prior:
        if not isinstance(other, Prior):
            return NotImplemented
        if len(self.factors) != len(other.factors):
            raise ValueError(
                f"priors must be of the same windows, got {len(self.factors)} of {self.name!r} and "
                f"{len(other.factors)} of {other.name!r}. Make both from one dataset."
            )
        reasons = {key: value.copy() for key, value in self.reasons.items()}
        for key, value in other.reasons.items():
            reasons[key] = reasons[key] | value if key in reasons else value
        return Prior(f"{self.name} x {other.name}", self.factors * other.factors, reasons)

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.factors)} windows, {self.num_excluded} excluded"]
        return "\n".join([*lines, *(f"  {int(value.sum())} {key}" for key, value in self.reasons.items())])


def length_prior(dataset: WindowDataset) -> Prior:
    """Valid targets over seq_len, so that a token counts the same in a padded window; without any it is excluded.

    Args:
        dataset: The windows.

    Cost: O(windows).
    """
    check_windows(dataset)
    factors = dataset.valid_targets() / dataset.seq_len
    return Prior("length", factors, {"no target": factors == 0})


def digits_prior(
    dataset: WindowDataset,
    numbers: NumberTokens,
    *,
    many: tuple[float, float] = (0.15, 0.5),
    few: tuple[float, float] = (0.02, 1.1),
) -> Prior:
    """Half the weight where more than 15 % of the inputs are digits, a tenth more where fewer than 2 % are.

    Args:
        dataset: The windows.
        numbers: Which tokens are digits.
        many: (share, factor) above the share.
        few: (share, factor) below the share.

    Raises:
        ValueError: if `numbers` is of another vocabulary.

    Cost: reads all windows once.
    """
    flags = _check_numbers(dataset, numbers).digits

    def factors(batch: Mapping[str, Any]) -> Float64:
        real = real_inputs(batch)
        share = (flags[batch["input_ids"]] & real).sum(axis=1) / np.maximum(real.sum(axis=1), 1)
        return np.where(share > many[0], many[1], np.where(share < few[0], few[1], 1.0))

    return batch_prior(dataset, factors, name="digits")


def number_list_prior(
    dataset: WindowDataset, numbers: NumberTokens, *, lists: Literal["exclude", "keep"] = "exclude"
) -> Prior:
    """Excludes windows with lists of numbers: four or more, with at most two other tokens between neighbours.

    A number counts once, however many tokens it is of; "error 0.03 mm" is one.

    Args:
        dataset: The windows.
        numbers: Which tokens are digits.
        lists: "exclude", or "keep" to count them only: `reasons` names the windows either way.

    Raises:
        ValueError: for another choice, or if `numbers` is of another vocabulary.

    Cost: reads all windows once.
    """
    if lists not in ("exclude", "keep"):
        raise ValueError(f"`lists` must be 'exclude' or 'keep', got {lists!r}. 'keep' only counts them.")
    kinds = _check_numbers(dataset, numbers).kinds

    def factors(batch: Mapping[str, Any]) -> Float64:
        of_tokens = np.where(real_inputs(batch), kinds[batch["input_ids"]], np.uint8(0))
        return np.where(has_number_list(of_tokens), 0.0, 1.0)

    prior = batch_prior(dataset, factors, name="number lists", reason="list of numbers")
    if lists == "keep":
        return Prior(prior.name, np.ones(len(prior.factors)), {})
    return prior


def batch_prior(
    dataset: WindowDataset,
    function: Callable[[Mapping[str, Any]], Any],
    *,
    name: str | None = None,
    reason: str | None = None,
) -> Prior:
    """A prior from any function of a batch.

    Args:
        dataset: The windows.
        function: Batch arrays as `dataset.read` gives them to real [B], finite and not negative; 0 excludes.
        name: Of the prior; default: the function's.
        reason: Why its windows are excluded; default: its name.

    Raises:
        ValueError: naming the first window for which the function returns something else.

    Cost: reads all windows once, in batches of about a million tokens.
    """
    check_windows(dataset)
    if name is None:
        name = str(getattr(function, "__name__", type(function).__name__))
    factors = np.empty(len(dataset))
    size = max(1, _BATCH_TOKENS // dataset.seq_len)
    for start in range(0, len(dataset), size):
        ids = np.arange(start, min(start + size, len(dataset)))
        returned = function(dataset.read(ids))
        try:
            values = np.asarray(returned, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"prior {name!r} must return one number per window, got {type(returned).__name__} ({error}) for "
                f"windows {ids[0]} to {ids[-1]}."
            ) from None
        if values.shape != ids.shape:
            raise ValueError(f"prior {name!r} must return shape {ids.shape}, got {values.shape}. One value per window.")
        bad = ~(np.isfinite(values) & (values >= 0))
        if bad.any():
            first = int(bad.argmax())
            raise ValueError(
                f"prior {name!r} must be finite and not negative, got {values[first]} for window {ids[first]}. "
                "Return 0 to exclude a window."
            )
        factors[ids] = values
    return Prior(name, factors, {reason or name: factors == 0})


def combine_priors(priors: Sequence[Prior]) -> Prior:
    """The product of several priors, with the reasons of all.

    Raises:
        ValueError: for none, or if they are not of the same windows.
    """
    if not priors:
        raise ValueError("`priors` must have at least one entry, got none. Leave priors out of the policy instead.")
    product = priors[0]
    for prior in priors[1:]:
        product = product * prior
    return product


def real_inputs(batch: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Inputs that are no padding, bool [B, W]: those up to the last label, or without any label the first."""
    labelled = batch["labels"] != IGNORED_LABEL
    real: NDArray[np.bool_] = np.logical_or.accumulate(labelled[:, ::-1], axis=1)[:, ::-1]
    return real


def check_windows(dataset: Any) -> None:
    """Refuse what is no WindowDataset, and one whose ids do not keep their text.

    Raises:
        TypeError, ValueError: with the cure.
    """
    if not isinstance(dataset, WindowDataset):
        raise TypeError(f"`dataset` must be a WindowDataset, got {dataset!r}. Priors are made before wrapping it.")
    if dataset.adaptive_weights_error is not None:
        raise ValueError(dataset.adaptive_weights_error)


def _check_numbers(dataset: Any, numbers: Any) -> NumberTokens:
    check_windows(dataset)
    if not isinstance(numbers, NumberTokens):
        raise TypeError(f"`numbers` must be NumberTokens, got {numbers!r}. Use NumberTokens.from_vocabulary.")
    if len(numbers) > dataset.store.vocab_size:
        raise ValueError(
            f"`numbers` must be of the store's vocabulary of {dataset.store.vocab_size} ids, got {len(numbers)}. "
            "Scan the tokenizer that made the store."
        )
    if len(numbers) < dataset.store.vocab_size:  # ids without a token are no numbers
        kinds = np.zeros(dataset.store.vocab_size, np.uint8)
        kinds[: len(numbers)] = numbers.kinds
        return NumberTokens(kinds)
    return numbers
