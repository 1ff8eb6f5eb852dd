"""Metrics of the far table: what this broker took out of it, how late that is, and what its owner holds.

Rules of this file
1. Cheap to ask: nothing is counted over all files.
2. As for the far tier, a table in trouble is no reason to stop sending clients here. Readiness does not look at this.
"""

from __future__ import annotations

from collections.abc import Iterator

from orbitmq.clock import Clock
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, one
from orbitmq.timing.far_table.owner import TableOwner
from orbitmq.timing.far_table.promoting import Promotion


class FarTableMetrics:
    """The collector of one broker's part in a far table; `owner` where it owns the catalog."""

    def __init__(self, promotion: Promotion, owner: TableOwner | None, clock: Clock) -> None:
        self._promotion = promotion
        self._owner = owner
        self._clock = clock

    def __call__(self) -> Iterator[Family]:
        promotion, owner = self._promotion, self._owner
        has_trouble = promotion.trouble is not None or promotion.owner_trouble is not None
        failures = promotion.failure_count
        yield one(catalogue.FAR_TABLE_PROMOTED, promotion.rows.count)
        yield one(catalogue.FAR_TABLE_RECALLED, promotion.recalled_count)
        yield one(catalogue.FAR_TABLE_SHARES, promotion.shares_at_hand)
        yield one(catalogue.FAR_TABLE_LATE, self._late_ms() / 1_000)
        if owner is not None:
            has_trouble = has_trouble or owner.unready is not None or owner.trouble is not None
            failures += owner.failure_count
            yield one(catalogue.FAR_TABLE_FILES, len(owner.log.catalog.files))
            yield one(catalogue.FAR_TABLE_OPEN_SHARES, sum(1 for _ in owner.log.catalog.shares()))
            yield one(catalogue.FAR_TABLE_DECISIONS, owner.decision_count)
        yield one(catalogue.FAR_TABLE_TROUBLE, int(has_trouble))
        yield one(catalogue.FAR_TABLE_FAILURES, failures)

    def _late_ms(self) -> int:
        start_ms = self._promotion.oldest_bucket_ms
        return 0 if start_ms is None else max(self._clock.now_ms() - start_ms, 0)
