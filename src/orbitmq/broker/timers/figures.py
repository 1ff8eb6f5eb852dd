"""How far the timers are, as RocketMQ's slaves and tools ask for it: checkpoint, counts by topic, runtime information.

Rules of this file
1. RocketMQ's names with RocketMQ's meaning where it has one; a number that cannot be had truthfully is an error, not a zero.

Source: RocketMQ remoting, GET_TIMER_CHECK_POINT and GET_TIMER_METRICS; broker, runtime information.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.broker.timers.answering import Question, request_question
from orbitmq.broker.timers.traffic import TimerTraffic
from orbitmq.clock import Clock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.remoting.bodies import DataVersion, TimerCount, TimerMetrics
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.store import MessageStore
from orbitmq.timing.rocketmq.checkpoint import TimerCheckpoint
from orbitmq.timing.timers.timers import Timers


class TimerFigures:
    def __init__(self, timers: Timers, traffic: TimerTraffic, store: MessageStore, clock: Clock) -> None:
        self._timers = timers
        self._traffic = traffic
        self._store = store
        self._clock = clock

    def checkpoint(self, command: Command, peer: Peer) -> Command:
        """GET_TIMER_CHECK_POINT, in the form of the file: up to where messages are durable and taken in, and up to which slot delivered."""
        offset = self._timers.synced_offset
        checkpoint = TimerCheckpoint(
            self._timers.delivered_until_ms,
            last_timer_queue_offset=offset,
            master_timer_queue_offset=offset,
            timestamp=self._clock.now_ms(),
        )
        return response(command, ResponseCode.SUCCESS, body=checkpoint.encode())

    def behind_ms(self) -> int:
        """How long the earliest pending message has been due; 0 when none is."""
        due_ms = self._timers.next_due_ms
        return 0 if due_ms is None else max(self._clock.now_ms() - due_ms, 0)

    def not_taken_in_count(self) -> int:
        """Records of the timer topic that the timers have not taken in."""
        return max(self._store.max_offset(TIMER_TOPIC, 0) - self._timers.next_offset, 0)

    def facts(self) -> Mapping[str, str]:
        """Part of the runtime information."""
        traffic = self._traffic
        return {
            "timerReadBehind": str(self.behind_ms() // 1_000),
            "timerOffsetBehind": str(self.not_taken_in_count()),
            "timerCongestNum": str(self._timers.pending_count),
            "timerEnqueueTps": f"{traffic.rate(traffic.taken):.1f}",
            "timerDequeueTps": f"{traffic.rate(traffic.delivered):.1f}",
        }

    def counts(self, command: Command, peer: Peer) -> Command | None:
        """GET_TIMER_METRICS: how many messages are pending by topic, as the index counts them. The file of the same form is written from
        these counts."""

        def answered(by_topic: Mapping[str, int]) -> Command:
            now_ms = self._clock.now_ms()
            body = TimerMetrics(
                timing_count={topic: TimerCount(count=count, time_stamp=now_ms) for topic, count in by_topic.items()},
                data_version=DataVersion(timestamp=now_ms),
            )
            return response(command, ResponseCode.SUCCESS, body=body.encode())

        question: Question[Mapping[str, int], Command] = request_question(command, peer, answered)
        return question.ask(lambda done, _: done(self._timers.index.counts(None, None, None, 0).by_topic))
