"""Settings for common kinds of text, each with when to use it; change single fields with `dataclasses.replace`."""

from __future__ import annotations

from adaptive_sampling.windows.config import WindowConfig


def long_documents(seq_len: int, *, seed: int = 0) -> WindowConfig:
    """Books, articles, code files: most documents are longer than a window.

    Windows within documents, the end of each covered, starts that differ from epoch to epoch. Every target counts
    once: those that the covering window shares with the one before are masked. Documents shorter than a window are
    lost; where the audit shows that these are more than a few per cent, use `short_texts`.

    Args:
        seq_len: Inputs of a window, in tokens.
        seed: Seed of the offsets.
    """
    return WindowConfig(seq_len, tail="cover", random_offset=True, mask_repeated_targets=True, seed=seed)


def question_answer(seq_len: int, *, seed: int = 0) -> WindowConfig:
    """Questions with answers, dialogues: texts that mean something only whole, most of them shorter than a window.

    Whole texts share windows, best-fit-decreasing; no target is the first token of another text. Give the model
    "position_ids" and a mask from "document_ids", or `cu_seqlens`, so that texts do not see each other.

    Args:
        seq_len: Inputs of a window, in tokens.
        seed: Seed of thinning, should it be switched on.
    """
    return WindowConfig(seq_len, pack="best_fit", mask_cross_document_targets=True, seed=seed)


def short_texts(seq_len: int, *, seed: int = 0) -> WindowConfig:
    """Reviews, messages, abstracts, web pages of all lengths: many documents per window, none of them lost.

    One stream per source, starts that differ from epoch to epoch and a covered end; no padding at all. A tenth of the
    separators is left out, so that the model does not lean on them.

    Args:
        seq_len: Inputs of a window, in tokens.
        seed: Seed of offsets and separators.
    """
    return WindowConfig(seq_len, pack="concat", tail="cover", random_offset=True, eos_dropout=0.1, seed=seed)


def held_out(config: WindowConfig, *, stride: int | None = None, offset: int = 0) -> WindowConfig:
    """The setting for held-out text that goes with `config`: same windows, nothing random, every target once.

    A smaller stride gives each target more context: with stride = seq_len // 4 at least three quarters of a window,
    for four times the work. With an offset, windows begin where those of training text of the same template do not.

    Args:
        config: Settings of the training windows.
        stride: Distance of starts; default: seq_len.
        offset: Tokens of each stream to leave out first.

    Raises:
        ValueError, TypeError: for a value out of range.
    """
    if config.pack == "best_fit":
        return WindowConfig(
            config.seq_len,
            stride,
            pack="best_fit",
            offset=offset,
            mask_cross_document_targets=config.mask_cross_document_targets,
        )
    return WindowConfig(
        config.seq_len,
        stride,
        tail="pad",
        offset=offset,
        min_length=config.min_length,
        pack=config.pack,
        group_by=config.group_by,
        mask_repeated_targets=True,
        mask_cross_document_targets=config.mask_cross_document_targets,
    )
