"""The timers of a broker put together: what answers requests about them, and what is counted.

Rules of this file
1. Nothing is decided here.
2. Requests that need the index wait until it knows what is pending (`waiting`): look-ups and changes for all of it, counts for the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.access.audit import Subject
from orbitmq.access.gate import LedTo
from orbitmq.broker.admission import Admission
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.timers.audited import about_far_tier, about_many
from orbitmq.broker.timers.changing import TimerChanges
from orbitmq.broker.timers.far_loads import FarLoads, LoadPlace
from orbitmq.broker.timers.far_tier import FarTierRequests
from orbitmq.broker.timers.figures import TimerFigures
from orbitmq.broker.timers.finding import TimerFinder
from orbitmq.broker.timers.recall_requests import RecallRequests
from orbitmq.broker.timers.recalls import Recalls
from orbitmq.broker.timers.requests import TimerRequests
from orbitmq.broker.timers.traffic import TimerTraffic
from orbitmq.broker.timers.waiting import WaitingQuestions
from orbitmq.protocol.remoting.commands import RequestCode

SELECTING: Final = (
    RequestCode.RECALL_TIMERS,
    RequestCode.RESCHEDULE_TIMERS,
    RequestCode.TIMER_STATUS,
    RequestCode.GET_TIMER,
)
"""Requests about timers that a selector names."""


class TimerService(Room):
    def __init__(self, core: BrokerCore, admission: Admission, derived: DerivedState) -> None:
        """For a broker that has timers."""
        timers, far, intake = derived.timers, derived.far, admission.timers
        assert timers is not None, "a broker without timers has no room for them"
        store, clock, index = core.store, core.clock, timers.index
        self.timers: Final = timers
        self.index: Final = index
        self.far: Final = far
        self.intake: Final = intake
        self.traffic: Final = TimerTraffic(clock)
        timers.taken_in.append(self.traffic.taken_in)
        timers.finished.append(self.traffic.finished)
        self.figures: Final = TimerFigures(timers, self.traffic, store, clock)
        self.changes: Final = TimerChanges(
            timers,
            far,
            intake,
            core.settings,
            clock,
            next_unique_key=admission.next_unique_key,
            unwritable=core.unwritable,
            is_over=lambda: store.is_over,
        )
        place = LoadPlace(admission.store_host, admission.own, intake.rules.precision_ms)
        self._handlers: dict[RequestCode, RequestHandler] = {
            RequestCode.GET_TIMER_CHECK_POINT: self.figures.checkpoint,
            RequestCode.FAR_TIER: FarTierRequests(far, store).answer,
            RequestCode.FAR_LOAD: FarLoads(far, place, store, clock, unwritable=core.unwritable).answer,
        }
        self.finder: Final = TimerFinder(
            core.settings.broker_name, intake.rules.precision_ms, core.topics, timers, index, far, store, clock
        )
        requests = TimerRequests(self.finder, self.changes, timers, index, far)
        self.recalls: Final = Recalls(core.topics, self.finder, self.changes, clock)
        recalls = RecallRequests(self.recalls)
        self._led_to: dict[RequestCode, LedTo] = dict.fromkeys(SELECTING, requests.topics)
        self._led_to[RequestCode.RECALL_MESSAGE] = recalls.topics
        questions = {
            RequestCode.RECALL_MESSAGE: recalls.recall,
            RequestCode.RECALL_TIMERS: requests.recall,
            RequestCode.RESCHEDULE_TIMERS: requests.reschedule,
            RequestCode.TIMER_STATUS: requests.status,
            RequestCode.LIST_TIMERS: requests.list,
            RequestCode.GET_TIMER: requests.show,
        }
        counts = {
            RequestCode.GET_TIMER_METRICS: self.figures.counts,
            RequestCode.COUNT_TIMERS: requests.count,
        }
        self._waiting = waiting = WaitingQuestions(store, clock)
        for code, handler in questions.items():
            self._handlers[code] = waiting.when_ready(handler, self._is_ready)
        for code, handler in counts.items():
            self._handlers[code] = waiting.when_ready(handler, lambda: index.is_counted)

    def wait_until_ready(self, question: object) -> None:
        """Before a look-up or a change that another front end asks for. Raises NotAnsweredYet, and lets the same question pass later."""
        self._waiting.wait_for(self._is_ready, question)

    def _is_ready(self) -> bool:
        return self.index.is_ready

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return self._handlers

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return self._led_to

    def subjects(self) -> Mapping[RequestCode, Subject]:
        return {
            RequestCode.RECALL_TIMERS: about_many,
            RequestCode.RESCHEDULE_TIMERS: about_many,
            RequestCode.FAR_TIER: about_far_tier,
        }

    def facts(self) -> Mapping[str, object]:
        return self.figures.facts()

    def close(self) -> None:
        self._waiting.close()
