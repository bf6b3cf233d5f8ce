"""A token store becomes windows: fixed-length training samples, each with an id that keeps its region of text for good.

Nothing is stored per window: an id turns into a start by arithmetic on one prefix sum per document.
"""

from adaptive_sampling.windows.attention import cu_seqlens, document_mask
from adaptive_sampling.windows.audit import WindowAudit, audit
from adaptive_sampling.windows.config import WindowConfig
from adaptive_sampling.windows.dataset import WindowDataset
from adaptive_sampling.windows.ids import with_ids

__all__ = ["WindowAudit", "WindowConfig", "WindowDataset", "audit", "cu_seqlens", "document_mask", "with_ids"]
