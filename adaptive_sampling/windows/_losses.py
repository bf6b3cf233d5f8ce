"""Warnings of text that no window reads, and of windows that have nothing to learn."""

from __future__ import annotations

import warnings

from adaptive_sampling.windows.config import WindowConfig
from adaptive_sampling.windows.plan import WindowPlan


def warn_of_losses(config: WindowConfig, plan: WindowPlan, num_windows: int) -> None:
    """Warn if there is no window, documents are lost because they are short, or windows have no target.

    Args:
        config: Settings of the windows.
        plan: What they became.
        num_windows: How many of them thinning keeps.
    """
    longest = int(plan.lengths.max(initial=0))
    needed = config.seq_len + 1 if config.pack != "best_fit" and config.tail != "pad" else 2
    if not plan.num_windows:
        what = "stream" if config.pack == "concat" else "document"
        cure = "Use a smaller seq_len, tail='pad', or pack='concat'."
        if needed == 2 or what == "stream":
            cure = "Use a smaller seq_len."
        _warn(f"no window: `seq_len` {config.seq_len} needs {needed} tokens, the longest {what} has {longest}. {cure}")
    elif not num_windows:
        _warn(f"no window: `thinning` {config.thinning} keeps none of {plan.num_windows}. Keep more.")
    elif config.pack == "best_fit":
        alone = int((plan.lengths == 1).sum())
        if alone:
            _warn(
                f"{alone} of {num_windows} windows hold a single token and have no target: in a batch of nothing else "
                "the mean loss is NaN. Use min_length=2 to leave documents of one token out."
            )
    elif config.pack == "none" and config.tail != "pad":
        short = plan.lengths < needed
        lost = int(plan.lengths[short].sum())
        if lost:
            _warn(
                f"{short.sum()} of {len(short)} documents are shorter than a window of {needed} tokens, lost: "
                f"{lost / int(plan.lengths.sum()):.1%} of the tokens. "
                "Use pack='concat' or tail='pad'; min_length leaves them out without this warning."
            )


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=4)  # where WindowDataset was called
