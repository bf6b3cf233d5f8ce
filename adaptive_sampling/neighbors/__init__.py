"""Token sequences become features, features find their nearest neighbours, neighbours form near-copy sets.

Near-copies are found here and nowhere else: for windows (scarcity), for documents, for held-out text. This is the one
folder that imports Faiss, and only inside functions.
"""

from adaptive_sampling.neighbors.clusters import cluster
from adaptive_sampling.neighbors.features import HashedFeaturizer, hashed_features, token_features
from adaptive_sampling.neighbors.near_copies import near_copy_sets, near_duplicates_of
from adaptive_sampling.neighbors.search import nearest

__all__ = [
    "HashedFeaturizer",
    "cluster",
    "hashed_features",
    "near_copy_sets",
    "near_duplicates_of",
    "nearest",
    "token_features",
]
