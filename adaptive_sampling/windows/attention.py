"""Which inputs of a packed window may see each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def cu_seqlens(document_ids: Any) -> NDArray[np.int32]:
    """Ends of the documents in a flattened batch, with a 0 before, as variable-length attention wants them.

    A document goes from where its id begins to where another does, or to the end of its row; padding belongs to the
    last one of its row.

    Args:
        document_ids: Integers [B, W] or [W], array or tensor: "document_ids" of a batch or item.

    Returns:
        int32 [documents + 1]; `np.diff(...).max()` is the longest.

    Raises:
        ValueError: for another shape.

    Example:
        >>> cu_seqlens([0, 0, 0, 1, 1, 2]).tolist()
        [0, 3, 5, 6]
    """
    ids = _rows(document_ids)
    begins = np.ones(ids.shape, bool)
    begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
    return np.append(np.flatnonzero(begins), ids.size).astype(np.int32)


def document_mask(document_ids: Any) -> NDArray[np.bool_]:
    """True where an input (row) may attend to another (column): an earlier one of its own document, or itself.

    Args:
        document_ids: Integers [B, W] or [W].

    Returns:
        bool [B, 1, W, W], which `scaled_dot_product_attention` broadcasts over heads.

    Raises:
        ValueError: for another shape.

    Example:
        >>> int(document_mask([0, 0, 0, 1, 1, 2]).sum())
        10
    """
    ids = _rows(document_ids)
    same = ids[:, :, None] == ids[:, None, :]
    mask: NDArray[np.bool_] = (same & np.tri(ids.shape[1], dtype=bool))[:, None]
    return mask


def _rows(document_ids: Any) -> NDArray[Any]:
    ids = np.asarray(document_ids.cpu() if isinstance(document_ids, torch.Tensor) else document_ids)
    if ids.ndim not in (1, 2):
        raise ValueError(f"`document_ids` must have shape [B, W] or [W], got {ids.shape}. Give those of a batch.")
    return ids.reshape(-1, ids.shape[-1]) if ids.ndim == 2 else ids[None]
