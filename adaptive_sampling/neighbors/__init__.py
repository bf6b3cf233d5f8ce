"""Token sequences become features, features find their nearest neighbours, neighbours form near-copy sets.

Near-copies are found here and nowhere else: for windows (scarcity), for documents, for held-out text. This is the one
folder that imports Faiss, and only inside functions.
"""

from adaptive_sampling.neighbors.clusters import cluster
from adaptive_sampling.neighbors.feature_file import open_features
from adaptive_sampling.neighbors.features import Documents, HashedFeaturizer, hashed_features, token_features
from adaptive_sampling.neighbors.module_features import module_features
from adaptive_sampling.neighbors.near_copies import NearCopies, find_near_copies, near_copy_sets, near_duplicates_of
from adaptive_sampling.neighbors.search import Neighbors, nearest
from adaptive_sampling.neighbors.text_features import text_features
from adaptive_sampling.neighbors.threshold import SimilarityHistogram, read_threshold

__all__ = [
    "Documents",
    "HashedFeaturizer",
    "NearCopies",
    "Neighbors",
    "SimilarityHistogram",
    "cluster",
    "find_near_copies",
    "hashed_features",
    "module_features",
    "near_copy_sets",
    "near_duplicates_of",
    "nearest",
    "open_features",
    "read_threshold",
    "text_features",
    "token_features",
]
