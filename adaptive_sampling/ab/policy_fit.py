"""Does the policy of an arm fit the data? Asked before the first run, where a run would find out too late."""

from __future__ import annotations

from adaptive_sampling.ab.arms import Arm, PolicySource, fresh_policy
from adaptive_sampling.ab.fingerprint import digest
from adaptive_sampling.ab.text_arms import TextPolicy
from adaptive_sampling.errors import UserCodeError


def fitting_digest(arm: Arm, source: PolicySource, num_windows: int) -> str:
    """Digest of the policy that `source` makes, which takes that number of windows.

    Raises:
        UserCodeError: if a function that a configuration names raised.
        ValueError: naming the arm, and the file where an array of another length comes from one.
    """
    try:
        if isinstance(source, TextPolicy):
            source.check_length(num_windows)
        policy = fresh_policy(source)
        described = digest(policy)
        policy.bind(num_windows)
    except UserCodeError:
        raise
    except (ValueError, TypeError) as error:
        raise ValueError(f"`policy` of arm {arm.name!r} must fit the data, got: {error}") from error
    return described
