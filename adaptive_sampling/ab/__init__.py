"""Does it help? Arms that differ in the choice of windows alone, trained with the same seeds, compared in pairs.

`run_ab` trains each arm with each seed in a folder of its own, measures held-out loss at the same steps, and says in
words how many tokens an arm saves, with an interval over seeds, or that no difference is seen.
"""

from adaptive_sampling.ab._lock import FolderInUseError, folder_lock
from adaptive_sampling.ab.arms import Arm, TrainingData
from adaptive_sampling.ab.comparison import Comparison
from adaptive_sampling.ab.fairness import FairnessError
from adaptive_sampling.ab.outcome import collect, write_outcome
from adaptive_sampling.ab.record import RunRecord
from adaptive_sampling.ab.report import write_report
from adaptive_sampling.ab.result import Result, format_table, load_result
from adaptive_sampling.ab.run import DiskFullError
from adaptive_sampling.ab.runner import run_ab
from adaptive_sampling.ab.statistics import Interval

__all__ = [
    "Arm",
    "Comparison",
    "DiskFullError",
    "FairnessError",
    "FolderInUseError",
    "Interval",
    "Result",
    "RunRecord",
    "TrainingData",
    "collect",
    "folder_lock",
    "format_table",
    "load_result",
    "run_ab",
    "write_outcome",
    "write_report",
]
