"""A token store becomes windows: fixed-length training samples, each with an id that keeps its region of text for good.

Nothing is stored per window: an id turns into a start by arithmetic on one prefix sum per document.
"""

from adaptive_sampling.windows import presets
from adaptive_sampling.windows.attention import cu_seqlens, document_mask
from adaptive_sampling.windows.audit import WindowAudit, audit
from adaptive_sampling.windows.audit_picture import audit_svg
from adaptive_sampling.windows.buckets import LengthBucketBatchSampler, bucket_of, padding_share, trim_padding
from adaptive_sampling.windows.config import WindowConfig
from adaptive_sampling.windows.curriculum import ContextCurriculum, Stage, check_positions, max_positions
from adaptive_sampling.windows.dataset import WindowDataset
from adaptive_sampling.windows.ids import with_ids
from adaptive_sampling.windows.numbers import NumberTokens
from adaptive_sampling.windows.priors import (
    Prior,
    batch_prior,
    combine_priors,
    digits_prior,
    length_prior,
    number_list_prior,
)
from adaptive_sampling.windows.recurrence import recurrence_prior, recurring_share
from adaptive_sampling.windows.transfer import transfer_weights

__all__ = [
    "ContextCurriculum",
    "LengthBucketBatchSampler",
    "NumberTokens",
    "Prior",
    "Stage",
    "WindowAudit",
    "WindowConfig",
    "WindowDataset",
    "audit",
    "audit_svg",
    "batch_prior",
    "bucket_of",
    "check_positions",
    "combine_priors",
    "cu_seqlens",
    "digits_prior",
    "document_mask",
    "length_prior",
    "max_positions",
    "number_list_prior",
    "padding_share",
    "presets",
    "recurrence_prior",
    "recurring_share",
    "transfer_weights",
    "trim_padding",
    "with_ids",
]
