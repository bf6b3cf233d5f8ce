"""The windows that were drawn most and least, with their text where it can be had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling.ab.arms import TrainingData
from adaptive_sampling.ab.held_out import readable

SHOWN = 8
_LENGTH = 400


def extremes(data: TrainingData, draws: NDArray[Any]) -> dict[str, list[dict[str, Any]]]:
    """The most and the least drawn windows, by id among equals.

    Args:
        data: whose windows they are.
        draws: integers `[N]`.

    Returns:
        `most` and `least`, each a list of `id`, `draws`, `source`, `text`; none where all were drawn equally often.
    """
    if not len(draws) or draws.min() == draws.max():
        return {}
    order = np.argsort(draws, kind="stable")
    least = order[:SHOWN]
    most = np.argsort(-draws.astype(np.int64), kind="stable")[:SHOWN]
    return {"most": _described(data, most, draws), "least": _described(data, least, draws)}


def _described(data: TrainingData, ids: NDArray[np.int64], draws: NDArray[Any]) -> list[dict[str, Any]]:
    reader, decode = readable(data.dataset), data.decode or _stored_tokenizer(data.dataset)
    rows = None if reader is None else np.asarray(reader.read(ids)["input_ids"])
    sources = [""] * len(ids)
    store = getattr(data.dataset, "store", None)
    if callable(getattr(data.dataset, "sources", None)) and store is not None:
        sources = [store.source_names[k] for k in data.dataset.sources(ids)]
    return [
        {
            "id": int(index),
            "draws": int(draws[index]),
            "source": sources[number],
            "text": "" if rows is None else _text(rows[number].tolist(), decode),
        }
        for number, index in enumerate(ids)
    ]


def _text(tokens: Sequence[int], decode: Callable[[Sequence[int]], str] | None) -> str:
    if decode is None:
        return "tokens " + " ".join(map(str, tokens[:64]))
    text = decode(tokens)
    return text if len(text) <= _LENGTH else text[:_LENGTH] + " …"


def _stored_tokenizer(dataset: Any) -> Callable[[Sequence[int]], str] | None:
    """The tokenizer that `prepare` left beside the store, if it is there and can be read."""
    store = getattr(dataset, "store", None)
    path = None if store is None else Path(store.path).parent / "tokenizer.json"
    if path is None or not path.exists():
        return None
    try:
        import tokenizers
    except ImportError:
        return None
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    return lambda tokens: str(tokenizer.decode(list(tokens), skip_special_tokens=False))
