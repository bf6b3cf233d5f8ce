"""The rules of systematic draws, word for word: exact fractions, one window at a time, no speed.

What a window is owed is its phase, plus its claims so far, minus the draws that it had. Tickets are given out one by
one, each to the window whose next ticket is the most overdue, until there is one for every draw that remains.
"""

import heapq
from fractions import Fraction
from math import floor


class ReferenceDraws:
    """Follows any implementation: it is told which windows were drawn and how weights changed, and knows what is owed.

    Args:
        weights: one number per window.
        num_draws: draws per epoch.
        phases: what each window is owed at the start, in [0, 1).
    """

    def __init__(self, weights, *, num_draws, phases):
        self.num_draws = num_draws
        self.weights = [Fraction(float(w)) for w in weights]
        self.phases = [Fraction(float(p)) for p in phases]
        self.counts = [0] * len(self.weights)
        self._claims = [Fraction(0)] * len(self.weights)
        self.drawn = 0  # over all epochs
        self._new = 0  # of these, draws whose claims are not in `_claims` yet

    def probabilities(self):
        """Claim of each window on one draw. Source shares belong here: share times the part within the source."""
        total = sum(self.weights)
        return [weight / total for weight in self.weights]

    def draw(self, window):
        assert self.weights[window] > 0, f"window {window} of weight 0 was drawn"
        self.counts[window] += 1
        self.drawn += 1
        self._new += 1

    def change(self, new_weights):
        """`new_weights`: window -> weight, for the draws from here on. Weight 0 voids what the window is owed."""
        owed = self.owed()
        for window, weight in new_weights.items():
            self.weights[window] = Fraction(float(weight))
            if not weight:
                # A phase is kept; whole tickets, owed or had too early, are forgotten.
                self.phases[window] += owed[window] % 1 - owed[window]

    def expected(self):
        """Claims of all draws so far, per window: the expected counts."""
        for window, probability in enumerate(self.probabilities()):
            self._claims[window] += probability * self._new
        self._new = 0
        return list(self._claims)

    def owed(self):
        """Phase + claims - draws, per window."""
        return [p + c - n for p, c, n in zip(self.phases, self.expected(), self.counts, strict=True)]

    def remaining(self):
        """Draws left in the epoch; at the end of one, those of the next."""
        return self.num_draws - self.drawn % self.num_draws

    def issue(self):
        """(tickets per window for the draws that remain, the common shift)."""
        balances = self._balances()
        # Ticket number k is due at the shift k - balance. The smallest come first, ties in order of ids.
        due = [(1 - balances[window], window, 1) for window, weight in enumerate(self.weights) if weight]
        heapq.heapify(due)
        tickets, shift = [0] * len(balances), Fraction(0)
        for _ in range(self.remaining()):
            shift, window, number = due[0]
            tickets[window] = number
            heapq.heapreplace(due, (number + 1 - balances[window], window, number + 1))
        return tickets, shift

    def issue_at(self, shift):
        """Tickets per window at a given common shift."""
        return [
            max(floor(balance + shift), 0) if weight else 0
            for balance, weight in zip(self._balances(), self.weights, strict=True)
        ]

    def _balances(self):
        """What windows will be owed at the end of the epoch."""
        remaining = self.remaining()
        return [owed + p * remaining for owed, p in zip(self.owed(), self.probabilities(), strict=True)]
