"""The timers of a broker put together: what answers requests about them, and what is counted.

Rules of this file
1. Nothing is decided here. Without an index what waits is neither found nor changed: those requests are refused with the key
   that says so. They are known all the same, so that a client can tell this broker from one that has no timers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.broker.refusal import Refusal
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.timers.changing import TimerChanges
from orbitmq.broker.timers.far_tier import FarTierRequests
from orbitmq.broker.timers.finding import PendingIndex, TimerFinder
from orbitmq.broker.timers.intake import TimerIntake
from orbitmq.broker.timers.recalling import RecallProcessor
from orbitmq.broker.timers.requests import TimerRequests
from orbitmq.broker.timers.standing import TimerStanding, TimerTopicCounts
from orbitmq.broker.timers.traffic import TimerTraffic
from orbitmq.broker.topics import TopicTable
from orbitmq.clock import Clock
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.store import MessageStore
from orbitmq.timing.far.far_timers import FarTimers
from orbitmq.timing.timers.timers import Timers

_NEED_INDEX: Final = (
    RequestCode.GET_TIMER_METRICS,
    RequestCode.RECALL_MESSAGE,
    RequestCode.RECALL_TIMERS,
    RequestCode.RESCHEDULE_TIMERS,
    RequestCode.TIMER_STATUS,
    RequestCode.LIST_TIMERS,
    RequestCode.COUNT_TIMERS,
    RequestCode.GET_TIMER,
)


def _without_index(command: Command, peer: Peer) -> Command | None:
    raise Refusal(
        ResponseCode.NO_PERMISSION,
        "this broker does not keep what is needed to find timer messages (timerIndexEnable=false)",
    )


class TimerService:
    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        store: MessageStore,
        clock: Clock,
        timers: Timers,
        index: PendingIndex | None,
        far: FarTimers | None,
        intake: TimerIntake,
        *,
        next_unique_key: Callable[[], str],
        unwritable: Callable[[], Refusal],
    ) -> None:
        self.timers: Final = timers
        self.index: Final = index
        self.far: Final = far
        self.intake: Final = intake
        self.traffic: Final = TimerTraffic(clock)
        timers.linked.append(self.traffic.linked)
        timers.finished.append(self.traffic.finished)
        self.standing: Final = TimerStanding(timers, self.traffic, store, clock)
        self.changes: Final = TimerChanges(
            timers, far, intake, settings, clock, next_unique_key=next_unique_key, unwritable=unwritable
        )
        self.handlers: dict[RequestCode, Callable[[Command, Peer], Command | None]] = {
            RequestCode.GET_TIMER_CHECK_POINT: self.standing.checkpoint,
            RequestCode.FAR_TIER: FarTierRequests(far).answer,
        }
        if index is None:
            self.handlers |= dict.fromkeys(_NEED_INDEX, _without_index)
            return
        finder = TimerFinder(settings.broker_name, intake.rules.precision_ms, topics, timers, index, far, store)
        requests = TimerRequests(finder, self.changes, timers, index, far, has_table=bool(settings.far_table_url))
        self.handlers |= {
            RequestCode.GET_TIMER_METRICS: TimerTopicCounts(index, clock).answer,
            RequestCode.RECALL_MESSAGE: RecallProcessor(topics, finder, self.changes, clock).recall,
            RequestCode.RECALL_TIMERS: requests.recall,
            RequestCode.RESCHEDULE_TIMERS: requests.reschedule,
            RequestCode.TIMER_STATUS: requests.status,
            RequestCode.LIST_TIMERS: requests.list,
            RequestCode.COUNT_TIMERS: requests.count,
            RequestCode.GET_TIMER: requests.show,
        }
