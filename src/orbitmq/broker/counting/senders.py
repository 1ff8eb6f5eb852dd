"""Who sends: when the last send came over each connection, so that whoever stops a broker knows whether somebody still does.

Rules of this file
1. Noting a send is one entry of `last_ns`, which the hot path writes by itself; everything else is done when somebody asks.
2. A send counts when it comes, whether it is taken or refused. What the broker sends by itself does not count.
3. The table is bounded (`SENDERS_MAX`). Beyond that those that have not sent for longest are forgotten: who sent last is always known.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from orbitmq.limits.broker import SENDERS_MAX, SENDERS_NAMED_MAX
from orbitmq.protocol.ids import host_text
from orbitmq.units import MINUTE_MS, NS_PER_MS


class Senders:
    def __init__(self) -> None:
        self.last_ns: dict[bytes, int] = {}
        """Packed address of a connection -> when its last send was read, by the monotonic clock."""

    def trim(self) -> None:
        """Called once a turn."""
        if len(self.last_ns) > SENDERS_MAX:
            kept = sorted(self.last_ns.items(), key=lambda sender: -sender[1])[: SENDERS_MAX // 2]
            self.last_ns.clear()
            self.last_ns.update(kept)

    def facts(self, now_ns: int) -> Mapping[str, object]:
        """For the runtime information: how many connections sent in the last minute, those that sent last with the milliseconds since, and
        the milliseconds since the last send of all; -1 where there was none since the start."""
        latest = sorted(self.last_ns.items(), key=lambda sender: -sender[1])
        minute_ns = now_ns - MINUTE_MS * NS_PER_MS
        named = [
            {"address": host_text(host), "agoMillis": (now_ns - sent_ns) // NS_PER_MS}
            for host, sent_ns in latest[:SENDERS_NAMED_MAX]
        ]
        return {
            "orbitmqSendersOfLastMinute": sum(sent_ns > minute_ns for _, sent_ns in latest),
            "orbitmqLastSenders": msgspec.json.encode(named).decode(),
            "orbitmqLastSendAgoMillis": (now_ns - latest[0][1]) // NS_PER_MS if latest else -1,
        }
