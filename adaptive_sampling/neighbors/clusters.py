"""Clusters of features by k-means: groups for windows that come without sources or documents."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_sampling._random import stable_hash
from adaptive_sampling.neighbors._checks import feature_matrix, integer_seed, positive_integer
from adaptive_sampling.neighbors._faiss import safe_threads
from adaptive_sampling.neighbors.rows import Rows, common_part

_ITERATIONS = 20


def cluster(features: Any, num_clusters: int = 64, *, seed: int = 0) -> NDArray[np.int64]:
    """Cluster of each row, by spherical k-means.

    Args:
        features: real `[N, dim]`; rows are taken without what they have in common, and scaled to unit length.
        num_clusters: clusters to make; at most one per row.
        seed: key of the first centres and of the rows trained on (256 per cluster).

    Returns:
        int64 `[N]`, numbers in [0, num_clusters); some may stay empty.

    Raises:
        TypeError: if the features are no real numbers.
        ValueError: on wrong shapes or settings, or rows that are not finite.

    Determinism:
        A function of the arguments. The number of threads of Faiss stays as it is (`OMP_NUM_THREADS`).

    Cost:
        O(N·num_clusters·dim) time, beside training on 256 rows per cluster.
    """
    count = positive_integer("num_clusters", num_clusters)
    seed = integer_seed(seed)
    source = feature_matrix("features", features)
    rows = Rows("features", source, centre=common_part(source, seed=seed)).all()
    if len(rows) == 0:
        return np.empty(0, dtype=np.int64)
    with safe_threads() as faiss:
        settings = faiss.ClusteringParameters()
        settings.seed = stable_hash(seed, "clusters") % (1 << 31)
        settings.spherical = True
        settings.niter = _ITERATIONS
        settings.min_points_per_centroid = 1  # else Faiss writes a warning to stderr
        centres = faiss.IndexFlatIP(rows.shape[1])
        faiss.Clustering(rows.shape[1], min(count, len(rows)), settings).train(rows, centres)
        return np.asarray(centres.search(rows, 1)[1][:, 0], dtype=np.int64)
