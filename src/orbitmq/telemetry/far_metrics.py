"""Metrics of the far tier: where its messages are, how far behind its work is, and what is in trouble.

Rules of this file
1. A tier in trouble is no reason to stop sending clients here: near messages are served, far ones wait in the log. Readiness does not
   look at this.
"""

from __future__ import annotations

from collections.abc import Iterator

from orbitmq.clock import Clock
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, one
from orbitmq.timing.far.far_timers import FarTimers


class FarMetrics:
    """The collector of one store's far tier."""

    def __init__(self, far: FarTimers, clock: Clock) -> None:
        self._far = far
        self._clock = clock

    def __call__(self) -> Iterator[Family]:
        held, keeper = self._far.held, self._far.keeper
        yield one(catalogue.FAR_IN_LOG, held.buffered.pending_count)
        yield one(catalogue.FAR_FILES, len(held.files.by_name))
        yield one(catalogue.FAR_PROMOTED, held.promoted_count)
        yield one(catalogue.FAR_PROMOTION_LAG, self._promotion_lag_ms() / 1_000)
        if keeper is None:
            return
        yield one(catalogue.FAR_LANDED, keeper.landed_count)
        yield one(catalogue.FAR_LANDING_AGE, self._landing_age_ms() / 1_000)
        yield one(catalogue.FAR_QUARANTINED, keeper.outcomes.quarantined_count)
        yield one(catalogue.FAR_DAMAGED, len(held.files.damaged))
        yield one(catalogue.FAR_TROUBLE, int(keeper.trouble is not None))
        yield one(catalogue.FAR_FAILURES, keeper.failure_count)

    def _landing_age_ms(self) -> int:
        held = self._far.held
        if held.waiting_since_ms is None or not held.buffered.pending_count:
            return 0
        return max(self._clock.now_ms() - held.waiting_since_ms, 0)

    def _promotion_lag_ms(self) -> int:
        promotion_ms = self._far.promotion_ms
        return 0 if promotion_ms is None else max(self._clock.now_ms() - promotion_ms, 0)
