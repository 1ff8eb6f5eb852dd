"""The timers of a broker put together: what answers requests about them, and what is counted.

Rules of this file
1. Nothing is decided here. Without an index what waits is neither found nor changed: those requests are refused with the key
   that says so. They are known all the same, so that a client can tell this broker from one that has no timers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.broker.admission import Admission
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.timers.changing import TimerChanges
from orbitmq.broker.timers.far_loads import FarLoads, LoadPlace
from orbitmq.broker.timers.far_tier import FarTierRequests
from orbitmq.broker.timers.figures import TimerFigures, TimerTopicCounts
from orbitmq.broker.timers.finding import TimerFinder
from orbitmq.broker.timers.recalling import RecallProcessor
from orbitmq.broker.timers.requests import TimerRequests
from orbitmq.broker.timers.traffic import TimerTraffic
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer

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


class TimerService(Room):
    def __init__(self, core: BrokerCore, admission: Admission, derived: DerivedState) -> None:
        """Of a broker that has timers."""
        timers, index, far, intake = derived.timers, derived.timer_index, derived.far, admission.timers
        assert timers is not None, "a broker without timers has no room for them"
        store, clock = core.store, core.clock
        self.timers: Final = timers
        self.index: Final = index
        self.far: Final = far
        self.intake: Final = intake
        self.traffic: Final = TimerTraffic(clock)
        timers.linked.append(self.traffic.linked)
        timers.finished.append(self.traffic.finished)
        self.standing: Final = TimerFigures(timers, self.traffic, store, clock)
        self.changes: Final = TimerChanges(
            timers,
            far,
            intake,
            core.settings,
            clock,
            next_unique_key=admission.next_unique_key,
            unwritable=core.unwritable,
        )
        place = LoadPlace(admission.store_host, admission.own, intake.rules.precision_ms)
        self.finder: TimerFinder | None = None
        """None where nothing is kept to find timer messages with."""
        self._handlers: dict[RequestCode, RequestHandler] = {
            RequestCode.GET_TIMER_CHECK_POINT: self.standing.checkpoint,
            RequestCode.FAR_TIER: FarTierRequests(far).answer,
            RequestCode.FAR_LOAD: FarLoads(far, place, store, clock, unwritable=core.unwritable).answer,
        }
        if index is None:
            self._handlers |= dict.fromkeys(_NEED_INDEX, _without_index)
            return
        self.finder = finder = TimerFinder(
            core.settings.broker_name, intake.rules.precision_ms, core.topics, timers, index, far, store, clock
        )
        requests = TimerRequests(finder, self.changes, timers, index, far)
        self._handlers |= {
            RequestCode.GET_TIMER_METRICS: TimerTopicCounts(index, clock).answer,
            RequestCode.RECALL_MESSAGE: RecallProcessor(core.topics, finder, self.changes, clock).recall,
            RequestCode.RECALL_TIMERS: requests.recall,
            RequestCode.RESCHEDULE_TIMERS: requests.reschedule,
            RequestCode.TIMER_STATUS: requests.status,
            RequestCode.LIST_TIMERS: requests.list,
            RequestCode.COUNT_TIMERS: requests.count,
            RequestCode.GET_TIMER: requests.show,
        }

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return self._handlers

    def facts(self) -> Mapping[str, object]:
        return self.standing.facts()
