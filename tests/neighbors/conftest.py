import faiss
import pytest


@pytest.fixture(autouse=True)
def one_thread():
    """Searches this small wait longer for threads than they compute."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before)
