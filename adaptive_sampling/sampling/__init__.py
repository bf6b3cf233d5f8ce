"""Weights → window ids, resumable.

The sampler holds one weight per window and turns the weights into a single global stream of window ids. Draws are
systematic by default: each window collects claims in proportion to its weight, whole claims become tickets, and a draw
removes one ticket, uniformly among all that are left. So equal weights are a shuffle, fixed weights are met to within
one draw per window, and weights may change at any moment. This folder knows ids, never text, and serves any map-style
dataset.
"""

from adaptive_sampling.sampling.sampler import AdaptiveSampler
from adaptive_sampling.sampling.shares import ShareSchedule, apportion
from adaptive_sampling.sampling.sum_tree import SumTree
from adaptive_sampling.sampling.tickets import Multinomial, Tickets

__all__ = ["AdaptiveSampler", "Multinomial", "ShareSchedule", "SumTree", "Tickets", "apportion"]
