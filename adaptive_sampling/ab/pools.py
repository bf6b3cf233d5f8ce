"""Where runs take place: in this process, in processes of this machine, or as tasks of a Ray cluster."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch

from adaptive_sampling.ab.progress import Progress
from adaptive_sampling.ab.record import RunRecord
from adaptive_sampling.ab.run import MakeData, MakeModule, RunPlan, execute

_POLL_SECONDS = 2.0

# glibc gives large buffers back to the system at every step unless told otherwise, which costs a third of the time on a
# CPU. A process reads this when it starts, so it is set for the runs that have processes of their own.
_KEEP_BUFFERS = {
    "MALLOC_MMAP_THRESHOLD_": str(2**33),
    "MALLOC_TRIM_THRESHOLD_": str(2**33),
    "MALLOC_TOP_PAD_": str(2**28),
}


def run_local(plans: Sequence[RunPlan], make_module: MakeModule, make_data: MakeData, shown: Progress) -> None:
    """One run after the other, in this process."""
    for plan in plans:
        shown.ended(execute(plan, make_module, make_data, shown.update))


def run_parallel(
    plans: Sequence[RunPlan], make_module: MakeModule, make_data: MakeData, jobs: int, shown: Progress
) -> None:
    """`jobs` runs at a time, each in a process of its own.

    Raises:
        ChildProcessError: if a process was ended from outside.
    """
    threads = max(1, (os.cpu_count() or 1) // jobs)
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_process, initargs=(threads,)
    )
    others = {child.pid for child in multiprocessing.active_children()}
    added = {name: value for name, value in _KEEP_BUFFERS.items() if name not in os.environ}
    os.environ.update(added)
    queue = list(plans)
    waiting: dict[Future[RunRecord], RunPlan] = {}
    try:
        while queue or waiting:
            # No more than there are processes: what waits inside the pool could not be called back on Ctrl-C.
            while queue and len(waiting) < jobs:
                plan = queue.pop(0)
                waiting[pool.submit(execute, plan, make_module, make_data)] = plan
            done, _ = wait(waiting, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                del waiting[future]
                shown.ended(future.result())
            _show_written(list(waiting.values()), shown)
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process of a run was ended from outside, perhaps for lack of memory. What it had done is kept: give the "
            "same command again, with fewer `jobs`. If the calling script has no `if __name__ == '__main__':`, give "
            "it one."
        ) from error
    except BaseException:
        # Each saves a checkpoint at the end of its step and leaves; Ctrl-C in a terminal has told them already.
        for child in multiprocessing.active_children():
            if child.pid not in others:
                child.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for name in added:
            os.environ.pop(name, None)


def run_on_ray(
    plans: Sequence[RunPlan], make_module: MakeModule, make_data: MakeData, jobs: int, shown: Progress
) -> None:
    """Each run is a task of the Ray cluster that is connected, or of a local one with `jobs` workers.

    Raises:
        ImportError: if Ray is not installed.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ModuleNotFoundError:
        raise ImportError(
            "`ray` must be installed for backend='ray', got no such module. "
            "Install it with: pip install ray, or all of its kind: pip install 'lightning-adaptive-sampling[ray]'"
        ) from None
    started = not ray.is_initialized()
    if started:
        address = os.environ.get("RAY_ADDRESS")
        local: dict[str, Any] = {} if address else {"num_cpus": jobs, "include_dashboard": False}
        ray.init(log_to_driver=False, logging_level="error", **local)
    # One try: a run that fails by itself says so in its record, and one that was lost goes on at the next call.
    task = ray.remote(num_cpus=1, max_retries=0)(execute)
    try:
        waiting = {task.remote(plan, make_module, make_data): plan for plan in plans}
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=_POLL_SECONDS)
            for reference in done:
                del waiting[reference]
                shown.ended(ray.get(reference))
            _show_written(list(waiting.values()), shown)
    finally:
        if started:
            ray.shutdown()


def _show_written(plans: Sequence[RunPlan], shown: Progress) -> None:
    for plan in plans:
        # What a process has written is all that this one knows of it.
        try:
            record = RunRecord.load(plan.folder)
        except ValueError:
            continue
        if record is not None and record.fingerprint == plan.fingerprint:
            shown.update(record)


def _begin_process(threads: int) -> None:
    """Ctrl-C reaches a process in the middle of a run alone; and none outlives the one that started it."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
