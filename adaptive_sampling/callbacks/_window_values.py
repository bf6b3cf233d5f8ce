"""One value per window out of what a training step returned, recorded or computed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor

from adaptive_sampling.callbacks._alignment import in_other_rows
from adaptive_sampling.callbacks._step_watch import StepWatch

Values = dict[str, Tensor]


def window_ids(batch: Any, id_key: str | int) -> Tensor:
    """The ids of a batch's windows, integer `[B]`.

    Raises:
        MisconfigurationException: if there are none, with the cure.
    """
    found = _entry(batch, id_key)
    if found is None:
        keys = str(sorted(map(str, batch))) if isinstance(batch, dict) else f"a {type(batch).__name__}"
        cure = "Wrap the dataset as adaptive_sampling.with_ids(dataset), or name the key with `id_key`."
        if isinstance(batch, (list, tuple)):
            keys += f" of {len(batch)} entries"
            cure = (
                "Wrap the dataset as adaptive_sampling.with_ids(dataset), which puts ids behind the entries that it "
                "has, and say where they are: `id_key=-1` is the last entry."
            )
        raise MisconfigurationException(
            f"AdaptiveSampling needs the window ids in each batch under {id_key!r}, got {keys}. {cure}"
        )
    try:
        ids = torch.as_tensor(found)
    except (TypeError, ValueError, RuntimeError):
        ids = None
    if ids is not None and ids.ndim == 2 and ids.shape[1] == 1:
        ids = ids[:, 0]
    if ids is None or ids.ndim != 1 or ids.is_floating_point() or ids.is_complex() or ids.dtype is torch.bool:
        got = type(found).__name__ if ids is None else f"{ids.dtype} of shape {tuple(ids.shape)}"
        raise MisconfigurationException(
            f"batch[{id_key!r}] must be one integer per window, a tensor of one dimension, got {got}. Let the dataset "
            "give the number that it was asked for, as adaptive_sampling.with_ids does."
        )
    return ids


def _entry(batch: Any, key: str | int) -> Any:
    """What `batch` holds under `key`, as an entry or as an attribute; None if it holds nothing there."""
    try:
        return batch[key]
    except (KeyError, IndexError, TypeError):
        return getattr(batch, key, None) if isinstance(key, str) else None


class WindowValues:
    """Reads the values that a policy needs from each step.

    What the user handed over counts first, then what was captured. The first batch must show all of them; a later one
    that does not is left out, with one warning, since it must not end a training that could go on.

    Args:
        needs: names of values, see `Signal`.
        loss_key: key of per-window losses in what `training_step` returns; another need is looked up as
            "per_sample_" and its name.
        least_loss: losses below it are refused at the first batch.

    Attributes:
        shown: a batch has shown its values.
    """

    def __init__(self, needs: tuple[str, ...], loss_key: str, least_loss: float = -math.inf) -> None:
        self.needs = needs
        self.loss_key = loss_key
        self.least_loss = least_loss
        self.num_left_out = 0
        self.shown = False

    def key_of(self, need: str) -> str:
        """Key of a value in what `training_step` returns."""
        return self.loss_key if need == "loss" else f"per_sample_{need}"

    def read(
        self, watch: StepWatch, outputs: Any, num_windows: int, batch: Any = None, *, skipped: bool = False
    ) -> Values | None:
        """Name → float32 `[num_windows]` on the values' own device; None: the step was skipped or shows none.

        Args:
            watch: what the step showed.
            outputs: what `training_step` returned, as Lightning hands it on.
            num_windows: in the batch.
            batch: what the step was given; None: it is not looked at.
            skipped: `training_step` returned None under automatic optimisation, which tells Lightning to leave the
                batch out: it may show nothing.

        Raises:
            MisconfigurationException: at the first batch, naming the ways out.
        """
        try:
            values = self._read(watch, outputs, num_windows, batch)
            if values is not None and not self.shown:
                self._check_sign(values)
        except MisconfigurationException as error:
            if skipped:
                return None
            if not self.shown:
                raise
            self.num_left_out += num_windows
            if self.num_left_out == num_windows:
                warnings.warn(f"a batch is left out of the weights, training goes on: {error}", stacklevel=2)
            return None
        self.shown = self.shown or values is not None
        return values

    def _check_sign(self, values: Values) -> None:
        for need, own in values.items():
            if need == "loss" and bool((own < self.least_loss).any()):
                raise MisconfigurationException(
                    f"per-window losses must not be negative for this policy, got {float(own.min())!r} in the first "
                    f"batch. Shift what {self.loss_key!r} or adaptive_sampling.record is given (a log density has no "
                    "scale), or give the policy a signal of your own, see adaptive_sampling.weights.BaseSignal."
                )

    def _read(self, watch: StepWatch, outputs: Any, num_windows: int, batch: Any) -> Values | None:
        values: Values = {}
        captured: Callable[[str], Tensor | None] | None = None
        for need in self.needs:
            given = outputs.get(self.key_of(need)) if isinstance(outputs, dict) else None
            if given is None and need == "loss" and watch.recorded:
                given = watch.recorded[-1]
            if given is not None:
                values[need] = _one_per_window(given, self.key_of(need), need, num_windows)
                continue
            if watch.capture is None:
                return None
            captured = captured or self._captured(watch, num_windows, need, batch)
            found = captured(need)
            if found is None:
                raise MisconfigurationException(
                    f"the policy needs {need!r} of each window, which is not captured. Return "
                    f'{{"loss": loss, "{self.key_of(need)}": values}} with a tensor of shape ({num_windows},) from '
                    "training_step."
                )
            values[need] = found
        return values

    def _captured(self, watch: StepWatch, num_windows: int, need: str, batch: Any) -> Callable[[str], Tensor | None]:
        assert watch.capture is not None
        calls = watch.capture.calls
        fitting = [call for call in calls if call.fits(num_windows)]
        if len(fitting) == 1:
            call = fitting[0]
            if not self.shown and in_other_rows(call.targets, call.valid, num_windows, batch):
                raise MisconfigurationException(
                    f"AdaptiveSampling needs the targets of each of the {num_windows} windows together, but those of "
                    "cross_entropy are tokens of this batch in another order: a selection over all windows, or with "
                    "windows in the second dimension. Either compute the loss over all targets, windows first, with "
                    f'those left out set to `ignore_index`, or return {{"loss": loss, "{self.key_of(need)}": values}} '
                    f"with a tensor of shape ({num_windows},) from training_step."
                )
            return lambda need: {"loss": call.window_means, "entropy": call.window_entropies}.get(need, _none)(
                num_windows
            )
        shapes = ", ".join(str(tuple(call.losses.shape)) for call in calls)
        seen = f"{len(fitting)} calls would fit" if fitting else "none was seen"
        key = self.key_of(need)
        record = ", or call adaptive_sampling.record(losses) in it" if need == "loss" else ""
        raise MisconfigurationException(
            f"AdaptiveSampling needs one {need} per window ({num_windows} in this batch), but {seen} while "
            f"training_step ran{f' (targets of cross_entropy: {shapes})' if shapes else ''}. Either compute the loss "
            "with torch.nn.functional.cross_entropy over all targets, windows first, or return "
            f'{{"loss": loss, "{key}": values}} with a tensor of shape ({num_windows},) from '
            f"training_step{record}. Fused, chunked and hand-written losses need the latter."
        )


def _none(num_windows: int) -> None:
    return None


def _one_per_window(given: Any, key: str, need: str, num_windows: int) -> Tensor:
    try:
        values = torch.as_tensor(given).detach()
    except (TypeError, ValueError, RuntimeError):
        raise MisconfigurationException(
            f"{key!r} in what training_step returns must be a tensor of shape ({num_windows},), one value per window, "
            f"got {given!r}."
        ) from None
    if values.numel() != num_windows or values.ndim > 2 or (values.ndim == 2 and 1 not in values.shape):
        raise MisconfigurationException(
            f"per-window {'losses' if need == 'loss' else need} must have shape ({num_windows},), one per id, got "
            f"{tuple(values.shape)}. Average over each window's targets, not over the batch."
        )
    return values.float().reshape(-1)
