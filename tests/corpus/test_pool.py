import os
import sys

import pytest

from adaptive_sampling.corpus._extras import MissingExtraError
from adaptive_sampling.corpus._pool import Workers


def test_jobs_give_their_results_here_and_in_processes():
    jobs = list(range(5))
    for workers in (0, 2):
        with Workers(workers) as pool:
            assert sorted(pool.run(abs, jobs)) == [(job, job) for job in jobs]
            assert sorted(pool.run(abs, [])) == []


def test_a_worker_that_ends_without_a_word_is_an_error_with_a_cure():
    with Workers(2) as pool, pytest.raises(OSError, match="fewer workers"):
        list(pool.run(os._exit, [1, 1, 1]))


def test_ray_that_is_missing_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"`ray` .*\[ray\]"):
        Workers(2, ray=True)
