import multiprocessing

import faiss
import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from adaptive_sampling.neighbors import cluster, nearest
from adaptive_sampling.neighbors._faiss import safe_threads

POINTS = np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float32)


class Searching(Dataset):
    """Each item is the result of searches in the worker that makes it."""

    def __init__(self, index):
        self.index = index

    def __len__(self):
        return 4

    def __getitem__(self, i):
        before = faiss.omp_get_max_threads()  # torch may have set it to one in its worker
        found = nearest(POINTS, POINTS[i : i + 40], num_neighbors=3, index=self.index, min_recall=0.0)
        clusters = cluster(POINTS[:500], 4)
        return {"ids": found.ids, "clusters": clusters, "threads": (before, faiss.omp_get_max_threads())}


@pytest.fixture
def several_threads(one_thread):
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(4)
    yield
    faiss.omp_set_num_threads(before)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this platform")
@pytest.mark.parametrize("index", ["exact", "ivf", "hnsw"])
def test_a_forked_worker_searches_with_one_thread_after_the_parent_searched_with_many(index, several_threads):
    expected = nearest(POINTS, num_neighbors=3, index=index, min_recall=0.0)
    alone = cluster(POINTS[:500], 4)
    assert expected.ids.shape == (3000, 3)
    loader = DataLoader(Searching(index), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=100)
    for i, item in enumerate(loader):
        with_many = nearest(POINTS, POINTS[i : i + 40], num_neighbors=3, index=index, min_recall=0.0)
        np.testing.assert_array_equal(item["ids"], with_many.ids)
        np.testing.assert_array_equal(item["clusters"], alone)
        before, after = item["threads"]
        assert after == before  # set back after each search


def test_threads_are_limited_for_a_while_and_set_back(several_threads):
    with safe_threads() as module:
        assert module.omp_get_max_threads() == 4
    with safe_threads(1) as module:
        assert module.omp_get_max_threads() == 1
    assert faiss.omp_get_max_threads() == 4
