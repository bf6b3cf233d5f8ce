"""Jobs in this process, in worker processes, or as Ray tasks: the same results, in whatever order they end."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from adaptive_sampling.corpus._extras import require

Job = TypeVar("Job")
Result = TypeVar("Result")


class Workers:
    """Where jobs run.

    Args:
        num_workers: Processes beside this one; 0: in this process.
        ray: Run as Ray tasks, on the cluster that `ray.init` finds, else on this machine with `num_workers` processors.

    Raises:
        MissingExtraError: if Ray is asked for and not installed.
    """

    def __init__(self, num_workers: int, *, ray: bool = False) -> None:
        self._num_workers = num_workers
        self._ray = require("ray", "to run on Ray", extra="ray") if ray else None
        self._pool: ProcessPoolExecutor | None = None
        self._started_ray = False

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        if self._started_ray and self._ray is not None:
            self._ray.shutdown()

    def run(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        """(number, result) of each job as it ends.

        Raises:
            OSError: if a worker process ends without a word; the work done so far is on disk.
        """
        if self._ray is not None:
            yield from self._run_ray(function, jobs)
        elif self._num_workers < 1 or len(jobs) < 2:
            for number, job in enumerate(jobs):
                yield number, function(job)
        else:
            yield from self._run_pool(function, jobs)

    def _run_pool(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        if self._pool is None:
            # spawn: a fork of a process whose threads (Arrow, tokenizers) hold locks may never return.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._num_workers, mp_context=context, initializer=_start_worker)
        waiting = iter(enumerate(jobs))
        running: dict[Future[Result], int] = {}
        try:
            while True:
                while len(running) < 2 * self._num_workers and (job := next(waiting, None)) is not None:
                    running[self._pool.submit(function, job[1])] = job[0]
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        except BrokenProcessPool:
            raise OSError(
                "a worker process ended without a word, as when memory runs out. "
                "Run the same command again with fewer workers; finished work is kept."
            ) from None

    def _run_ray(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        ray = self._ray
        assert ray is not None
        if not ray.is_initialized():
            settings = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": max(self._num_workers, 1)}
            ray.init(log_to_driver=False, include_dashboard=False, **settings)
            self._started_ray = True
        remote = ray.remote(function)
        waiting = iter(enumerate(jobs))
        running: dict[Any, int] = {}
        limit = 2 * max(self._num_workers, int(ray.cluster_resources().get("CPU", 1)))
        while True:
            while len(running) < limit and (job := next(waiting, None)) is not None:
                running[remote.remote(job[1])] = job[0]
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            for reference in done:
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                yield running.pop(reference), result


def _start_worker() -> None:
    # Each worker is one of many: the library's own threads would fight over the processors.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Ctrl-C reaches every process of a terminal; the parent alone decides what becomes of the work.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """A worker whose parent was killed would wait for jobs for ever."""
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
