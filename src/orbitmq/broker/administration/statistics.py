"""Counters of one topic, group or broker over the last minute, hour and day (315).

Rules of this file
1. A name that is not counted here and a key without traffic get the same answer as with RocketMQ: tools take it for
   "nothing happened".

Source: RocketMQ broker, statistics items; remoting, VIEW_BROKER_STATS_DATA.
"""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.counting.statistics import Statistics
from orbitmq.broker.counting.traffic import DAY, HOUR, MINUTE, Counter, Sum, Traffic, Window
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.settings import BrokerSettings
from orbitmq.clock import Clock
from orbitmq.protocol.remoting.bodies import BrokerStatsData, StatsItem
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer

Find = Callable[[str], Counter | None]
Measure = Callable[[Sum], int]


class StatisticsProcessor:
    def __init__(self, settings: BrokerSettings, statistics: Statistics, clock: Clock) -> None:
        self._statistics = statistics
        self._clock = clock
        broker = settings.broker_cluster_name

        def whole(counter: Counter) -> Find:
            return lambda key: counter if key == broker else None

        def by_name(table: Traffic) -> Find:
            return table.get

        self._items: dict[str, tuple[Find, Measure]] = {
            "TOPIC_PUT_NUMS": (by_name(statistics.topics), _count),
            "TOPIC_PUT_SIZE": (by_name(statistics.topics), _size),
            "GROUP_GET_NUMS": (by_name(statistics.groups), _count),
            "GROUP_GET_SIZE": (by_name(statistics.groups), _size),
            "GROUP_GET_FROM_DISK_NUMS": (by_name(statistics.groups_from_disk), _count),
            "GROUP_GET_FROM_DISK_SIZE": (by_name(statistics.groups_from_disk), _size),
            "SNDBCK_PUT_NUMS": (by_name(statistics.sent_back), _count),
            "DLQ_PUT_NUMS": (by_name(statistics.dead_letters), _count),
            "BROKER_PUT_NUMS": (whole(statistics.put), _count),
            "BROKER_GET_NUMS": (whole(statistics.got), _count),
        }

    def view(self, command: Command, peer: Peer) -> Command:
        name, key = command.text("statsName"), command.text("statsKey")
        item = self._items.get(name)
        if item is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"this broker does not count {name!r}; it counts {', '.join(sorted(self._items))}",
            )
        find, measure = item
        now_ns = self._clock.monotonic_ns()
        self._statistics.settle(now_ns)
        counter = find(key)
        if counter is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"nothing was counted as {name} for {key!r} since the start")

        def over(window: Window) -> StatsItem:
            gained = counter.within(window, now_ns)
            total = measure(gained)
            return StatsItem(sum=total, tps=total / gained.seconds, avgpt=total / gained.times if gained.times else 0.0)

        body = BrokerStatsData(stats_minute=over(MINUTE), stats_hour=over(HOUR), stats_day=over(DAY))
        return response(command, ResponseCode.SUCCESS, None, None, body.encode())


def _count(gained: Sum) -> int:
    return gained.count


def _size(gained: Sum) -> int:
    return gained.size
