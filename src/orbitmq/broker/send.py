"""Sending: requests 10, 310 and 320.

Rules of this file
1. A message is answered once, when the flush mode it asked for is satisfied; a oneway one never.
2. Refusals of a send carry MSG_REGION and TRACE_ON like its success: clients read them from either.
3. Overload is answered before any work is done: a request that waited too long, or came while too many are unanswered.
4. This is the hot path. Fields are read once and as cheaply as Python allows; whatever does not read cleanly takes the
   tolerant path (`_read_tolerant`), which is the reference.

Source: RocketMQ broker, send path and flow control; remoting, sending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from orbitmq.access.gate import LedTo
from orbitmq.broker.admission import Admission
from orbitmq.broker.batch_admission import BatchAdmission
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.counting.statistics import LATENCY_MASK
from orbitmq.broker.idempotence.identity import WAITING_TOPICS, SendIdentity
from orbitmq.broker.idempotence.memory import SentPlace
from orbitmq.broker.idempotence.repeats import FirstAnswer, Repeats
from orbitmq.broker.real_topics import topics_of_send
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.sending import BatchPlacement, Origin, Placement, Sending
from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import FLAG_ONEWAY, FLAG_RESPONSE, Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.send_answer import SendAnswers
from orbitmq.protocol.remoting.versions import OUR_VERSION, Language
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus

ANSWERS = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}

SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
REPLIES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)

SEND_MESSAGE_V1 = int(RequestCode.SEND_MESSAGE)

ORIGIN = "broker.origin"
"""Attachment of a connection: its `Origin`, made at its first send."""


class SendProcessor(Room):
    def __init__(self, core: BrokerCore, admission: Admission, repeats: Repeats | None = None) -> None:
        """repeats: what repeats of idempotent sends are told, where the broker knows them."""
        settings, store_host = core.settings, core.facilities.store_host
        self.unanswered_count = 0
        self._settings = settings
        self._admission = admission
        self._store = core.store
        self._clock = core.clock
        self._statistics = core.statistics
        self._tally = core.tally
        self._unwritable = core.unwritable
        self._repeats = repeats
        self._wait_limit_ns = settings.wait_time_ms_in_send_queue * 1_000_000
        self._fast_failure = settings.broker_fast_failure_enable
        self._unanswered_max = settings.send_thread_pool_queue_capacity
        self._batches = BatchAdmission(admission)
        self._answers = SendAnswers(store_host, settings.region_id, settings.trace_on)
        self._id_prefix = store_host.hex().upper()
        self._region = settings.region_id
        self._trace_on = "true" if settings.trace_on else "false"

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return dict.fromkeys(SENDS, self.send)

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return dict.fromkeys(SENDS, topics_of_send)

    def excess_handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return dict.fromkeys((*SENDS, *REPLIES), self._refuse_excess)

    def turn_ended(self) -> None:
        self._admission.timers.turn_ended()

    def facts(self) -> Mapping[str, object]:
        return {
            "orbitmqLoweredDelayLevels": self._admission.clamped_count,
            "orbitmqCrowdedTimerSlots": self._admission.timers.congested_count,
        }

    def send(self, command: Command, peer: Peer) -> Command | None:
        """Codes 10 and 310 with one message, 320 or either of them with a batch (the request's `batch` field decides)."""
        now_ns = self._clock.monotonic_ns()
        waited_ns = now_ns - peer.received_ns
        if waited_ns > self._wait_limit_ns or self.unanswered_count >= self._unanswered_max:
            busy = self._busy(waited_ns)
            if busy is not None:
                return self._refuse(command, busy)
        fields = command.fields
        if command.code == SEND_MESSAGE_V1:
            is_batch = command.boolean("batch")
            sending = _read_tolerant(command, _LONG_NAMES)
        else:
            is_batch = fields.get("m") == "true"
            try:
                sending = Sending(
                    fields["b"],
                    int(fields["e"]),
                    bytes(command.body),
                    fields["i"],
                    int(fields["h"]),
                    int(fields["f"]),
                    int(fields["g"]),
                    fields["c"],
                    int(fields["d"]),
                    fields.get("k") == "true",
                    int(fields["j"]),
                    int(fields["l"]) if "l" in fields else None,
                )
            except (KeyError, ValueError):
                sending = _read_tolerant(command, _LETTERS)
        origin = peer.attachments.get(ORIGIN)
        if type(origin) is not Origin:
            origin = peer.attachments[ORIGIN] = Origin(peer.host, command.version)
        if is_batch:
            return self._send_batch(command, peer, sending, origin)
        placement = self._admission.admit(sending, origin, self._clock.now_ms(), now_ns)
        if not isinstance(placement, Placement):
            if isinstance(placement, Refusal):
                return self._refuse(command, placement)
            earlier, placement = placement, placement.placement
            first = self._repeats.first_answer(earlier.place, placement.unique_key) if self._repeats else None
            if first is not None:
                self._answer_repeat(command, peer, first, placement)
                return None
        try:
            appended = self._store.append(placement.message)
        except StoreUnwritableError:
            return self._refuse(command, self._unwritable())
        except RecordError as error:
            return self._refuse(command, Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)))
        delayed = placement.message.topic in WAITING_TOPICS
        self._statistics.stored(sending.topic, 1, appended.size, delayed)
        queue_id, unique_key, identity = placement.queue_id, placement.unique_key, placement.identity
        handle = placement.handle
        if identity is not None and (memory := self._admission.idempotence) is not None:
            memory.sent(identity, appended, queue_id)
        if command.flag & FLAG_ONEWAY:
            if identity is not None:
                self._forget_unwritten((identity,), (appended,), queue_id)
            return None
        self.unanswered_count += 1
        opaque, request_code = command.opaque, command.code

        def stored(status: PutStatus) -> None:
            self.unanswered_count -= 1
            if not appended.queue_offset & LATENCY_MASK:
                done_ns = self._clock.monotonic_ns()
                self._statistics.put_latency.took(waited_ns + done_ns - now_ns, done_ns)
            place = (opaque, queue_id, unique_key, appended.physical_offset, appended.queue_offset, handle)
            if status is PutStatus.PUT_OK:
                peer.send_answer(self._answers.encode(*place))
            else:
                if identity is not None:
                    self._forget(status, (identity,), (appended,), queue_id)
                peer.send(self._answer_not_ok(status, request_code, self._answers.command(*place)))

        self._store.wait_durable(appended.end_offset, placement.wait, stored)
        return None

    def _answer_repeat(self, command: Command, peer: Peer, first: FirstAnswer, placement: Placement) -> None:
        """Tell the sender what the first send was told, when that one's record is as safe as this sender wants it."""
        if (memory := self._admission.idempotence) is not None:
            memory.repeat_count += 1
        if command.flag & FLAG_ONEWAY:
            return
        self.unanswered_count += 1
        place = first.place
        answer = self._answers.command(
            command.opaque,
            place.queue_id,
            first.unique_key or placement.unique_key,
            place.physical_offset,
            place.queue_offset,
            first.handle,
        )
        answer.fields |= first.more_fields

        def stored(status: PutStatus) -> None:
            self.unanswered_count -= 1
            peer.send(answer if status is PutStatus.PUT_OK else self._answer_not_ok(status, command.code, answer))

        # What is written is synced in whole turns: a sync beyond the record's first byte covers all of it.
        self._store.wait_durable(place.physical_offset + 1, placement.wait, stored)

    def _remember(self, sends: Sequence[SendIdentity], records: Sequence[Dispatched], queue_id: int) -> None:
        """A repeat of these sends is one from now on, unless `_forget` hears that the write at the end of the turn failed."""
        memory = self._admission.idempotence
        if memory is not None:
            memory.sent_all(sends, records, queue_id)

    def _forget(
        self, status: PutStatus, sends: Sequence[SendIdentity], records: Sequence[Dispatched], queue_id: int
    ) -> None:
        memory = self._admission.idempotence
        if memory is not None and status is PutStatus.SERVICE_NOT_AVAILABLE:
            for identity, record in zip(sends, records, strict=True):
                memory.failed(identity, record, queue_id)

    def _forget_unwritten(self, sends: Sequence[SendIdentity], records: Sequence[Dispatched], queue_id: int) -> None:
        """`_forget` for sends that nobody waits for."""
        told = partial(self._forget, sends=sends, records=records, queue_id=queue_id)
        self._store.wait_durable(records[-1].end_offset, False, told)

    def _send_batch(self, command: Command, peer: Peer, sending: Sending, origin: Origin) -> Command | None:
        placement = self._batches.admit(sending, origin, self._clock.now_ms())
        if isinstance(placement, Refusal):
            return self._refuse(command, placement)
        try:
            appended = self._store.append_batch(placement.messages) if placement.messages else []
        except StoreUnwritableError:
            return self._refuse(command, self._unwritable())
        except RecordError as error:
            return self._refuse(command, Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)))
        if appended:
            sizes = [0, 0]
            waiting = [message.topic in WAITING_TOPICS for message in placement.messages]
            for record, waits in zip(appended, waiting, strict=True):
                sizes[waits] += record.size
            for waits in set(waiting):
                self._statistics.stored(sending.topic, waiting.count(waits), sizes[waits], waits)
        if placement.sends:
            self._remember(placement.sends, appended, placement.queue_id)
            self._forget_unwritten(placement.sends, appended, placement.queue_id)
        if command.flag & FLAG_ONEWAY:
            return None
        prefix = self._id_prefix
        places = _places(placement, appended)
        fields = {
            "queueId": str(placement.queue_id if appended else places[0].queue_id),
            "msgId": ",".join([f"{prefix}{one.physical_offset:016X}" for one in places]),
            "TRACE_ON": self._trace_on,
            "MSG_REGION": self._region,
            "queueOffset": str(places[0].queue_offset),
        }
        if placement.unique_key is not None:
            fields["transactionId"] = placement.unique_key
        answer = Command(0, command.opaque, FLAG_RESPONSE, Language.JAVA, OUR_VERSION, None, fields, True)
        self.unanswered_count += 1

        def stored(status: PutStatus) -> None:
            self.unanswered_count -= 1
            peer.send(answer if status is PutStatus.PUT_OK else self._answer_not_ok(status, command.code, answer))

        self._store.wait_durable(max(one.physical_offset for one in places) + 1, placement.wait, stored)
        return None

    def _answer_not_ok(self, status: PutStatus, request_code: int, answer: Command) -> Command:
        """`answer` with the code of an outcome other than success. A message that is stored but not flushed keeps the
        whole header: clients count it as sent."""
        self._statistics.count_failed()
        self._tally.failed(request_code, ANSWERS[status])
        answer.code = ANSWERS[status]
        if status is PutStatus.FLUSH_DISK_TIMEOUT:
            answer.remark = "the message is stored, but was not flushed to disk in time"
        else:
            answer.remark, answer.fields = self._unwritable().remark, self._common_fields()
        return answer

    # --- refusing ---------------------------------------------------------------------------------------------------

    def _busy(self, waited_ns: int) -> Refusal | None:
        if not self._fast_failure:
            return None
        if waited_ns > self._wait_limit_ns:
            self._statistics.busy_count += 1
            return Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"[TIMEOUT_CLEAN_QUEUE]broker busy: the request waited {waited_ns // 1_000_000} ms, "
                f"more than {self._wait_limit_ns // 1_000_000} ms; {self.unanswered_count} sends are unanswered",
            )
        return self._overload(f"{self.unanswered_count} sends are unanswered")

    def _refuse_excess(self, command: Command, peer: Peer) -> Command | None:
        """The answer to a send that finds the line of waiting requests full."""
        return self._refuse(command, self._overload("too many requests wait"))

    def _overload(self, what: str) -> Refusal:
        self._statistics.busy_count += 1
        return Refusal(
            ResponseCode.SYSTEM_BUSY,
            f"[OVERLOAD]broker busy: {what}, at most {self._unanswered_max} may be; try later",
        )

    def _refuse(self, command: Command, refusal: Refusal) -> Command | None:
        self._statistics.count_failed()
        if command.flag & FLAG_ONEWAY:
            return None
        return Command(
            refusal.code,
            command.opaque,
            FLAG_RESPONSE,
            Language.JAVA,
            OUR_VERSION,
            refusal.remark,
            self._common_fields(),
            True,
        )

    def _common_fields(self) -> dict[str, str]:
        return {"TRACE_ON": self._trace_on, "MSG_REGION": self._region}


def _places(placement: BatchPlacement, appended: Sequence[Dispatched]) -> Sequence[Dispatched | SentPlace]:
    """Where each message of the batch is: at its earlier place, or at the next new one."""
    if not placement.earlier:
        return appended
    new = iter(appended)
    return [next(new) if place is None else place for place in placement.earlier]


_LONG_NAMES = (
    "topic",
    "queueId",
    "properties",
    "flag",
    "sysFlag",
    "bornTimestamp",
    "defaultTopic",
    "defaultTopicQueueNums",
    "unitMode",
    "reconsumeTimes",
    "maxReconsumeTimes",
)
_LETTERS = ("b", "e", "i", "h", "f", "g", "c", "d", "k", "j", "l")
"""The fields of `_read_tolerant`, in its order, under their long and their short names."""


def _read_tolerant(command: Command, names: tuple[str, ...]) -> Sending:
    """A send request with anything missing: absent or unreadable numbers are 0, absent text is empty, as Java reads it."""
    topic, queue_id, properties, flag, sys_flag, born, template, queues, unit, reconsumed, limit = names
    return Sending(
        command.text(topic),
        command.int32(queue_id),
        bytes(command.body),
        command.text(properties),
        command.int32(flag),
        command.int32(sys_flag),
        command.integer(born),
        command.text(template),
        command.int32(queues),
        command.boolean(unit),
        command.int32(reconsumed),
        command.int32(limit) if limit in command.fields else None,
    )
