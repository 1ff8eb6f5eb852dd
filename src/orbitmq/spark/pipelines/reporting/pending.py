"""What is pending at the brokers, by due time.

Rules of this file
1. The brokers count; no message is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from orbitmq.client.connect_settings import ConnectSettings
from orbitmq.limits.spark import REPORT_NEAR_DAYS
from orbitmq.units import DAY_MS, HOUR_MS


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages fall due from `begin_ms` on, for `width_ms`."""

    begin_ms: int
    width_ms: int
    messages: int


class ClusterPending(msgspec.Struct, frozen=True, kw_only=True):
    """What the brokers of a cluster had pending at `at_ms`. `spans` leaves out empty ones, earliest first."""

    at_ms: int
    messages: int
    far: int
    """Those of `messages` that lie in far tiers."""
    next_due_ms: int | None
    by_topic: Mapping[str, int]
    spans: tuple[Due, ...]


def pending_of(name_server: str, connect: ConnectSettings, now_ms: int) -> ClusterPending:
    """Ask the brokers that the name servers know. Raises ClientError; a RocketMQ broker cannot count (TimersMissingError)."""
    import orbitmq.sync
    from orbitmq.spark.connect_options import connect_parts

    near_end_ms = (now_ms // HOUR_MS + 24 * REPORT_NEAR_DAYS) * HOUR_MS
    with orbitmq.sync.connect(name_server, options=connect_parts(connect).client_options) as mq:
        whole = mq.timers.counts()
        near = mq.timers.counts(due_until=near_end_ms, bucket=timedelta(hours=1))
        later = mq.timers.counts(due_from=near_end_ms, bucket=timedelta(days=1))
    spans: dict[tuple[int, int], int] = {}
    for width_ms, counts in ((HOUR_MS, near), (DAY_MS, later)):
        for bucket in counts.buckets:
            if width_ms == HOUR_MS or bucket.begin_ms + DAY_MS > near_end_ms:
                spans[bucket.begin_ms, width_ms] = bucket.count
    return ClusterPending(
        at_ms=now_ms,
        messages=whole.pending,
        far=whole.far,
        next_due_ms=whole.next_due_ms,
        by_topic=dict(whole.by_topic),
        spans=tuple([Due(begin_ms=begin, width_ms=width, messages=count) for (begin, width), count in sorted(spans.items())]),
    )  # fmt: skip
