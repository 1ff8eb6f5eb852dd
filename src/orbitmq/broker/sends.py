"""What becomes of sends: one decision for every front end.

A front end makes a `Sending` of what came to it, and an answer of the outcome; between the two nothing knows its protocol. So limits,
timers, repeats, busy answers and types of messages are the same whichever way a message comes.

Rules of this file
1. An outcome is told once: a `Refusal` that is known at once is returned, and everything else is told later, when the flush mode that
   the message asked for is satisfied. A sender that wants no answer (`told` is None) is refused the same way.
2. Overload is refused before anything else is looked at: a send that waited too long, or came while too many are unanswered.
3. This is the hot path: `send` does for most messages what their topic cannot refuse, and no more.

Source: RocketMQ broker, send path and flow control.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from orbitmq.broker.admission import Admission
from orbitmq.broker.batch_admission import BatchAdmission
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.counting.senders import Senders
from orbitmq.broker.counting.statistics import LATENCY_MASK
from orbitmq.broker.idempotence.identity import WAITING_TOPICS, SendIdentity
from orbitmq.broker.idempotence.memory import SentPlace
from orbitmq.broker.idempotence.repeats import FirstAnswer, Repeats
from orbitmq.broker.put_answers import ANSWERS, NOT_CONFIRMED, fate
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sending import BatchPlacement, Origin, Placement, Sending, StoredBatch, StoredSend
from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus

Stored = TypeVar("Stored", StoredSend, StoredBatch)


class Sends:
    """The sends of one broker.

    Raises `RecordsNotInMemory` where an earlier send has to be read from the disk, and OSError: nothing was changed then, and the front end
    may ask again.
    """

    def __init__(self, core: BrokerCore, admission: Admission, repeats: Repeats | None = None) -> None:
        """repeats: what repeats of idempotent sends are told, where the broker knows them."""
        settings = core.settings
        self.unanswered_count = 0
        self.senders = Senders()
        self._last_ns = self.senders.last_ns
        self._admission = admission
        self._batches = BatchAdmission(admission)
        self._store = core.store
        self._clock = core.clock
        self._statistics = core.statistics
        self._unwritable = core.unwritable
        self._repeats = repeats
        self._wait_limit_ns = settings.wait_time_ms_in_send_queue * 1_000_000
        self._fast_failure = settings.broker_fast_failure_enable
        self._unanswered_max = settings.send_thread_pool_queue_capacity

    def send(
        self, sending: Sending, origin: Origin, received_ns: int, told: Callable[[StoredSend | Refusal], None] | None
    ) -> Refusal | None:
        """Decide about one message, whose bytes were read at `received_ns` (monotonic)."""
        self._last_ns[origin.host] = received_ns
        now_ns = self._clock.monotonic_ns()
        waited_ns = now_ns - received_ns
        if waited_ns > self._wait_limit_ns or self.unanswered_count >= self._unanswered_max:
            busy = self._busy(waited_ns)
            if busy is not None:
                return busy
        now_ms = self._clock.now_ms()
        placement = self._admission.admit(sending, origin, now_ms, now_ns)
        if not isinstance(placement, Placement):
            if isinstance(placement, Refusal):
                return self._refused(placement)
            earlier, placement = placement, placement.placement
            first = None
            if self._repeats is not None:
                first = self._repeats.first_answer(earlier.place, placement.unique_key, now_ms)
            if first is not None:
                self._tell_first(first, placement, told)
                return None
        try:
            appended = self._store.append(placement.message, now_ms=now_ms)
        except StoreUnwritableError:
            return self._refused(self._unwritable())
        except RecordError as error:
            return self._refused(Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)))
        self._statistics.stored(sending.topic, 1, appended.size, placement.message.topic in WAITING_TOPICS)
        identity, is_waited_for = placement.identity, told is not None and placement.wait
        if identity is not None and (memory := self._admission.idempotence) is not None:
            memory.sent(identity, appended, placement.queue_id)
            self._forget_if_lost((identity,), (appended,), placement.queue_id, wait=is_waited_for)
        if told is None:
            return None
        self.unanswered_count += 1
        outcome = StoredSend(
            PutStatus.PUT_OK,
            placement.queue_id,
            placement.unique_key,
            appended.physical_offset,
            appended.queue_offset,
            placement.handle,
        )
        if appended.queue_offset & LATENCY_MASK:
            stored = partial(self._stored, told, outcome)
        else:
            stored = partial(self._stored_measured, received_ns, told, outcome)
        self._store.wait_durable(appended.end_offset, is_waited_for, stored)
        return None

    def send_batch(
        self, sending: Sending, origin: Origin, received_ns: int, told: Callable[[StoredBatch | Refusal], None] | None
    ) -> Refusal | None:
        """As `send`, for the batch that is the body of `sending`."""
        self._last_ns[origin.host] = received_ns
        waited_ns = self._clock.monotonic_ns() - received_ns
        if waited_ns > self._wait_limit_ns or self.unanswered_count >= self._unanswered_max:
            busy = self._busy(waited_ns)
            if busy is not None:
                return busy
        placement = self._batches.admit(sending, origin, self._clock.now_ms())
        if isinstance(placement, Refusal):
            return self._refused(placement)
        try:
            appended = self._store.append_batch(placement.messages) if placement.messages else []
        except StoreUnwritableError:
            return self._refused(self._unwritable())
        except RecordError as error:
            return self._refused(Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)))
        self._count_batch(sending.topic, placement, appended)
        if placement.sends and (memory := self._admission.idempotence) is not None:
            memory.sent_all(placement.sends, appended, placement.queue_id)
            self._forget_if_lost(placement.sends, appended, placement.queue_id, wait=False)
        if told is None:
            return None
        places = _places(placement, appended)
        queue_id = placement.queue_id if appended else places[0].queue_id
        self.unanswered_count += 1
        stored = partial(self._stored, told, StoredBatch(PutStatus.PUT_OK, queue_id, placement.unique_key, places))
        self._store.wait_durable(max(one.physical_offset for one in places) + 1, placement.wait, stored)
        return None

    def overload(self, what: str) -> Refusal:
        """The refusal of a send that finds too much before it."""
        self._statistics.busy_count += 1
        return self._refused(
            Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]broker busy: {what}, at most {self._unanswered_max} may be; try later",
            )
        )

    # --- inside -----------------------------------------------------------------------------------------------------

    def _tell_first(
        self, first: FirstAnswer, placement: Placement, told: Callable[[StoredSend | Refusal], None] | None
    ) -> None:
        """Tell the sender what the first send was told, when that one's record is as safe as this sender wants it."""
        if (memory := self._admission.idempotence) is not None:
            memory.repeat_count += 1
        if told is None:
            return
        self.unanswered_count += 1
        place, unique_key = first.place, first.unique_key or placement.unique_key
        offsets = place.physical_offset, place.queue_offset
        outcome = StoredSend(PutStatus.PUT_OK, place.queue_id, unique_key, *offsets, first.handle, first)
        # What is written is synced in whole turns: a sync beyond the record's first byte covers all of it.
        self._store.wait_durable(place.physical_offset + 1, placement.wait, partial(self._stored, told, outcome))

    def _stored_measured(
        self, received_ns: int, told: Callable[[StoredSend | Refusal], None], outcome: StoredSend, status: PutStatus
    ) -> None:
        done_ns = self._clock.monotonic_ns()
        self._statistics.put_latency.took(done_ns - received_ns, done_ns)
        self._stored(told, outcome, status)

    def _stored(self, told: Callable[[Stored | Refusal], None], outcome: Stored, status: PutStatus) -> None:
        """Tell the outcome of what is in the log now, or may be lost, or taken out again: nothing is promised then."""
        self.unanswered_count -= 1
        if status is PutStatus.PUT_OK:
            told(outcome)
            return
        if status.is_kept:
            outcome.status = status
            told(outcome)
            return
        self._statistics.count_failed()
        status = fate(status, is_over=self._store.is_over)
        if status is PutStatus.UNKNOWN:
            reason = f"; {self._store.unwritable_reason}" if self._store.is_over else ""
            told(Refusal(ANSWERS[status], NOT_CONFIRMED + reason))
        else:
            told(self._unwritable())

    def _count_batch(self, topic: str, placement: BatchPlacement, appended: Sequence[Dispatched]) -> None:
        sizes = [0, 0]
        waiting = [message.topic in WAITING_TOPICS for message in placement.messages]
        for record, waits in zip(appended, waiting, strict=True):
            sizes[waits] += record.size
        for waits in set(waiting):
            self._statistics.stored(topic, waiting.count(waits), sizes[waits], waits)

    def _forget_if_lost(
        self, sends: Sequence[SendIdentity], records: Sequence[Dispatched], queue_id: int, *, wait: bool
    ) -> None:
        """A repeat of these sends is one from now on, unless their write fails, or with `wait` their sync."""

        def stored(status: PutStatus) -> None:
            memory = self._admission.idempotence
            if memory is not None and status is PutStatus.SERVICE_NOT_AVAILABLE:
                for identity, record in zip(sends, records, strict=True):
                    memory.failed(identity, record, queue_id)

        self._store.wait_durable(records[-1].end_offset, wait, stored)

    def _busy(self, waited_ns: int) -> Refusal | None:
        if not self._fast_failure:
            return None
        if waited_ns <= self._wait_limit_ns:
            return self.overload(f"{self.unanswered_count} sends are unanswered")
        self._statistics.busy_count += 1
        return self._refused(
            Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"[TIMEOUT_CLEAN_QUEUE]broker busy: the request waited {waited_ns // 1_000_000} ms, "
                f"more than {self._wait_limit_ns // 1_000_000} ms; {self.unanswered_count} sends are unanswered",
            )
        )

    def _refused(self, refusal: Refusal) -> Refusal:
        self._statistics.count_failed()
        return refusal


def _places(placement: BatchPlacement, appended: Sequence[Dispatched]) -> Sequence[Dispatched | SentPlace]:
    """Where each message of the batch is: at its earlier place, or at the next new one."""
    if not placement.earlier:
        return appended
    new = iter(appended)
    return [next(new) if place is None else place for place in placement.earlier]
