"""Metrics of recurring messages.

Rules of this file
1. Names of recurring messages are no labels: they come from users and there may be thousands. The list shows each one's state.
"""

from __future__ import annotations

from collections.abc import Iterator

from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, Sample, by_label, one
from orbitmq.timing.recurrence.runner import Recurrences


class RecurringMetrics:
    """The collector of one broker's recurring messages."""

    def __init__(self, recurrences: Recurrences) -> None:
        self._recurrences = recurrences

    def __call__(self) -> Iterator[Family]:
        recurrences = self._recurrences
        counts = recurrences.state_counts()
        left_out = [(reason.value, count) for reason, count in recurrences.left_out_counts.items()]
        yield by_label(catalogue.RECURRING, counts.items())
        yield one(catalogue.RECURRING_RUNS, recurrences.stored_count)
        yield by_label(catalogue.RECURRING_LEFT_OUT, left_out)
        yield Family(catalogue.RECURRING_LATENESS, [Sample((), recurrences.lateness_ms.buckets().scaled(1e-3))])
        yield one(catalogue.RECURRING_REWRITTEN, recurrences.rewritten_count)
