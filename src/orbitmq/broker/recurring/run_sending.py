"""From a run of a recurring message to the message that is stored, by the same admission that judges every send.

Rules of this file
1. All runs of one recurring message go to one queue as long as their topic has as many queues: consumers get them in order.
2. A run creates no topic. Whoever deletes a topic while messages recur in it sees them reported, and not the topic come back.
"""

from __future__ import annotations

import zlib
from typing import Final

from orbitmq.broker.admission import Admission
from orbitmq.broker.idempotence.identity import ONCE_NAMES
from orbitmq.broker.message_properties import DECIDED_HERE
from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sending import Origin, Placement, Sending
from orbitmq.broker.topics import TopicTable
from orbitmq.clock import Clock
from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX
from orbitmq.protocol.properties import OUR_PREFIX, Property, append_property, encode_properties
from orbitmq.protocol.remoting.versions import OUR_VERSION
from orbitmq.store.message import NewMessage
from orbitmq.timing.recurrence.runner import Unstorable
from orbitmq.timing.recurrence.schedule import Occurrence
from orbitmq.timing.recurrence.state import RecurringState, RunMessage

RUN_ID_CHARS: Final = 32

OWN_TO_RUNS: Final = DECIDED_HERE | ONCE_NAMES | {Property.UNIQ_KEY}
"""Properties that a run gets from its broker, or that would make it something else than a message that is stored at once."""


class BrokerRuns:
    """Makes messages of runs, and knows what groups have consumed."""

    def __init__(self, admission: Admission, topics: TopicTable, offsets: OffsetTable, clock: Clock) -> None:
        self._admission = admission
        self._topics = topics
        self._offsets = offsets
        self._clock = clock
        self._origin = Origin(admission.store_host, OUR_VERSION)

    def message_of(self, state: RecurringState, run: Occurrence, now_ms: int) -> NewMessage:
        topic = state.message.topic
        config = self._topics.get(topic)
        if config is None:
            raise Unstorable(f"topic {topic!r} does not exist any more")
        values = _run_values(state.message, state.name, run.id, run.planned_ms)
        queue_id = zlib.crc32(state.name.encode()) % max(config.write_queue_nums, 1)
        admitted = self._judge(self._sending(state.message, queue_id, values, now_ms), now_ms)
        if isinstance(admitted, Refusal):
            raise Unstorable(admitted.remark)
        if admitted.topic != topic:
            raise Unstorable(f"a message to {topic!r} goes to {admitted.topic!r} first")
        admitted.properties = append_property(admitted.properties, Property.RUN, str(state.generation))
        return admitted

    def check(self, name: str, message: RunMessage, *, template: str, queues: int) -> None:
        """Judge the message of a definition as a run of it would be, which creates its topic where that is allowed.

        Raises Refusal.
        """
        now_ms = self._clock.now_ms()
        values = _run_values(message, name, "0" * RUN_ID_CHARS, TIMER_DELIVER_MS_MAX)
        sending = self._sending(message, 0, values, now_ms)
        sending.default_topic, sending.default_topic_queues = template, queues
        judged = self._judge(sending, now_ms)
        if isinstance(judged, Refusal):
            raise judged

    def committed_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        return self._offsets.query(group, topic, queue_id)

    def _sending(self, message: RunMessage, queue_id: int, values: dict[str, str], now_ms: int) -> Sending:
        text = encode_properties(values).decode()
        return Sending(message.topic, queue_id, message.body, text, born_timestamp=now_ms)

    def _judge(self, sending: Sending, now_ms: int) -> NewMessage | Refusal:
        placement = self._admission.admit(sending, self._origin, now_ms, self._clock.monotonic_ns())
        if isinstance(placement, Refusal):
            return placement
        assert isinstance(placement, Placement), "no run is an idempotent send"
        return placement.message


def _run_values(message: RunMessage, name: str, run_id: str, planned_ms: int) -> dict[str, str]:
    """What a run says: its message's own properties, and which run it is."""
    return message.properties | {
        Property.UNIQ_KEY: run_id,
        Property.RECURRING: name,
        Property.PLANNED_MS: str(planned_ms),
    }


def reserved_property(message: RunMessage) -> str | None:
    """A property that a recurring message may not have, if it has one."""
    for name in message.properties:
        if name in OWN_TO_RUNS or name.startswith(OUR_PREFIX):
            return name
    return None
