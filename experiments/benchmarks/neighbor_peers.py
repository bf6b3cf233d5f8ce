"""scikit-learn's NearestNeighbors and hnswlib on features in a file; run by the interpreter that has them.

Prints JSON: of each peer the seconds for all rows and the recall. scikit-learn is exact and searches some rows alone;
its time is scaled to all of them.
"""

import json
import sys
import time

import hnswlib
import numpy as np
from sklearn.neighbors import NearestNeighbors


def main(path, k, num_queries):
    features = np.load(path)
    chosen = np.sort(np.random.default_rng(0).choice(len(features), min(num_queries, len(features)), replace=False))
    figures = {}
    start = time.perf_counter()
    exact = NearestNeighbors(n_neighbors=k + 1, n_jobs=-1).fit(features)
    fitted = time.perf_counter() - start
    start = time.perf_counter()
    distance, _ = exact.kneighbors(features[chosen])
    search = (time.perf_counter() - start) * len(features) / len(chosen)
    figures[f"scikit-learn NearestNeighbors, scaled from {len(chosen)} queries"] = {
        "seconds": fitted + search,
        "recall": 1.0,
    }
    start = time.perf_counter()
    graph = hnswlib.Index(space="l2", dim=features.shape[1])
    graph.init_index(max_elements=len(features), ef_construction=100, M=16, random_seed=0)
    graph.add_items(features)
    built = time.perf_counter() - start
    # Looks deeper until it is as good as ours has to be.
    for ef in (32, 64, 128, 256, 512, 1024):
        graph.set_ef(ef)
        found = np.sort(graph.knn_query(features[chosen], k=k + 1)[0], axis=1)
        # Everything as near as the farthest true one counts, as in ours.
        near = ((features[chosen][:, None] - features[found]) ** 2).sum(-1)
        recall = float((near <= distance[:, -1:] ** 2 * (1 + 1e-4) + 1e-6).sum(1).clip(max=k + 1).mean() / (k + 1))
        if recall >= 0.95:
            break
    start = time.perf_counter()
    graph.knn_query(features, k=k + 1)
    figures[f"hnswlib, ef {ef}"] = {"seconds": built + time.perf_counter() - start, "recall": recall}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
