"""The life of popped messages through both front ends, from a seed: as `test_pop_life`, whose account it keeps, and more.

A group is popped over remoting and received over gRPC, by turns; either front settles what the other has brought. Beside that
* a push consumer has messages that are renewed while it is there, and settles them by the handle that it was given first: they come to
  nobody meanwhile, and come again when it goes;
* calls are cancelled while they are carried out: nothing that was popped for them is hidden any longer. What was given back so may come
  twice after a crash within `WINDOW_MS`, when its copy is stored and the offsets are not saved; so may what was hidden when the clock was
  set back;
* messages are made dead letters, by word or because their attempts are used up: each lies in the dead-letter topic then;
* another group receives in order: while a batch of a queue is open nobody else gets anything of that queue, and what was acknowledged
  without a gap is not received again until a crash; after an orderly stop, never.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.property.test_pop_life import LONGEST_MS, Account, Life, LivingRig, Popped, Wrong, run
from tests.worlds.grpc_calls import Caller
from tests.worlds.grpc_consumers import GrpcConsumer, received

from orbitmq.broker.messaging.front import MessagingFront
from orbitmq.broker.messaging.held_messages import HeldMessages
from orbitmq.broker.messaging.receiving import ReceiveCalls
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.pop.in_flight import PopQueue, QueueInFlight
from orbitmq.broker.pop.ordering import PopOrders
from orbitmq.broker.pop.settling import Hiding, PopName, PoppedMessage, PopSettling
from orbitmq.broker.send_back import GivenBack, SendBacks
from orbitmq.limits.grpc import RENEWALS_MS
from orbitmq.protocol.grpc.messages import (
    ClientType,
    Code,
    HeartbeatRequest,
    HeartbeatResponse,
    Message,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    Resource,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.pop_receipts import PopSource, pop_retry_topic
from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig
from orbitmq.store.durability import PutStatus

SEEDS = 24
NEVER_MS = 1 << 60
GONE_MS = 43_200_000
"""Invisible time of what is popped for callers that are gone: nobody would see it again here."""

START_TAKES_MS = 20

WINDOW_MS = 2_000
"""Offsets are saved every second here, and the broker looks once a second at what is due."""

NOTHING = frozenset({Code.MESSAGE_NOT_FOUND, Code.TOPIC_NOT_FOUND})
ORDERED = "in-order"


class FrontRig(LivingRig):
    """With the front end of RocketMQ 5."""

    def open(self) -> None:
        """A start takes a moment: in the millisecond of the last hidings, which have pop times of their own, no new process pops."""
        if self.first_now_ms is not None:
            self.first_now_ms += START_TAKES_MS
        super().open()
        self.front = MessagingFront(self.broker.core, self.broker.rooms, MessagingSettings())
        self.broker.groups.put(SubscriptionGroupConfig(group_name="g", retry_max_times=6))
        self.broker.groups.put(SubscriptionGroupConfig(group_name=ORDERED, consume_message_orderly=True))

    def close(self) -> None:
        self.front.close()
        super().close()

    def consumer(self, client_id: str, group: str = "g") -> GrpcConsumer:
        return GrpcConsumer(Caller(self.front, self.clock, self.broker.end_turn, client_id), "T", group)


class OpenBatch:
    """Messages of one queue that were received in order and are not all acknowledged."""

    def __init__(self, attempt: str, messages: list[Message]) -> None:
        self.attempt = attempt
        self.left = {message.body: message.system_properties.receipt_handle for message in messages}
        self.bodies = [message.body for message in messages]

    def due_ms(self, body: bytes) -> int:
        return sum(map(int, self.left[body].split(" ")[1:3]))

    def done(self) -> set[bytes]:
        """Those that were acknowledged without a gap."""
        first = next((at for at, body in enumerate(self.bodies) if body in self.left), len(self.bodies))
        return set(self.bodies[:first])


class OrderAccount:
    """What was received in order, and what was acknowledged of it."""

    def __init__(self) -> None:
        self.stored: set[bytes] = set()
        """Bodies that this group has not acknowledged."""
        self.batches: dict[int, OpenBatch] = {}
        self.done: set[bytes] = set()
        self.over: set[bytes] = set()

    def crashed(self) -> None:
        self.batches.clear()
        self.done.clear()

    def received(self, messages: list[Message], attempt: str, now_ms: int) -> None:
        queues: dict[int, list[Message]] = {}
        for message in messages:
            queues.setdefault(message.system_properties.queue_id, []).append(message)
        for queue_id, found in queues.items():
            offsets = [message.system_properties.queue_offset for message in found]
            if offsets != sorted(set(offsets)):
                raise Wrong(f"queue {queue_id} comes out of order: {offsets}")
            batch = self.batches.get(queue_id)
            if batch is not None and batch.attempt != attempt:
                early = [body for body in batch.left if now_ms < batch.due_ms(body)]
                if early:
                    raise Wrong(f"queue {queue_id} gives a second batch while {early} are open")
            for message in found:
                if message.body in self.done | self.over:
                    raise Wrong(f"{message.body!r} was acknowledged in order")
            self.batches[queue_id] = OpenBatch(attempt, found)

    def acknowledged(self, queue_id: int, body: bytes) -> None:
        batch = self.batches[queue_id]
        del batch.left[body]
        self.done |= batch.done()
        if not batch.left:
            del self.batches[queue_id]


class ReceiveAccount(Account):
    """With what is renewed, what is dead, and the account of the other group."""

    def __init__(self) -> None:
        super().__init__()
        self.renewed: set[bytes] = set()
        """What the push consumer has."""
        self.dead: set[bytes] = set()
        """Made dead letters, which was answered."""
        self.in_order = OrderAccount()
        self.given_back: dict[bytes, int] = {}
        """Bodies that were made visible at once, and when."""
        self.ahead: set[bytes] = set()
        """Bodies that were hidden when the clock was set back: their pop times are later than their copies, by which a start knows them."""
        self.twice: set[bytes] = set()
        """Bodies that may come twice, since the crash."""

    def delivered(self, body: bytes, now_ms: int) -> None:
        if body not in self.twice:
            super().delivered(body, now_ms)

    def stopped(self) -> None:
        super().stopped()
        self.client_gone()
        self.in_order.over |= self.in_order.done

    def crashed(self) -> None:
        super().crashed()
        self.twice |= self.given_back.keys() | self.ahead
        if self.renewed or self.given_back:  # nobody knows any more who has it, or that it was given back
            self.hidden_ms = RENEWALS_MS[-1]
        self.renewed.clear()
        self.in_order.crashed()

    def client_gone(self) -> None:
        for body in self.renewed:
            if body in self.held:
                del self.held[body]
        self.renewed.clear()


class ReceiveLife(Life):
    """One seed's."""

    rig: FrontRig
    account: ReceiveAccount

    def __init__(self, rig: FrontRig, rng: random.Random, account: ReceiveAccount) -> None:
        self.rig = rig
        self.is_second = account.sent_count > 0
        self.connect()
        self.know_groups()
        super().__init__(rig, rng, account)

    def know_groups(self) -> None:
        """Both groups begin with the first messages: the end may have come when their offsets were deleted with the topic, and a group that
        is new to a topic with messages begins with the last one over gRPC."""
        offsets, store = self.rig.broker.offsets, self.rig.store
        for group in ("g", ORDERED):
            for queue_id in store.queue_ids("T"):
                if offsets.query(group, "T", queue_id) is None:
                    offsets.commit(group, "T", queue_id, store.min_offset("T", queue_id))

    def connect(self) -> None:
        self.consumer = self.rig.consumer("simple")
        self.push = self.rig.consumer("push")
        self.push.connect(ClientType.PUSH_CONSUMER)
        self.ordered = self.rig.consumer("ordered", ORDERED)
        self.watch(self.rig.broker.rooms.pops.settling)

    def watch(self, settling: PopSettling) -> None:
        """Note what is given back, by the broker or by a client that hides it for no time."""
        hide, show, now_ns = settling.hide, settling.show, self.rig.clock.monotonic_ns

        def note(key: PopQueue, offset: int) -> None:
            if key.group == "g":
                self.account.given_back |= dict.fromkeys(self.read(key.topic, key.queue_id, offset), now_ns())

        def hidden(key: PopQueue, offset: int, pop: PopName, invisible_ms: int, **more: bool) -> Hiding:
            if not invisible_ms:
                note(key, offset)
            return hide(key, offset, pop, invisible_ms, **more)

        def shown(messages: Iterable[PoppedMessage], *, suspended: bool) -> int:
            found = list(messages)
            for message in found:
                note(message.queue, message.offset)
            return show(found, suspended=suspended)

        settling.hide = hidden  # type: ignore[method-assign]
        settling.show = shown  # type: ignore[method-assign]

    def read(self, topic: str, queue_id: int, offset: int, count: int = 1) -> list[bytes]:
        """Bodies from there on. What is not in memory is read by the worker, which is done at once."""
        read = [self.rig.store.get(topic, queue_id, offset, count, 1 << 30)]
        if read[0].cold is not None:
            self.rig.store.read_cold(read[0], read.append)
        return [record.body for part in read[-1].records for record in iter_records(bytes(part))]

    def acts(self) -> list[Callable[[], object]]:
        return [
            *super().acts(), self.pass_time, self.receive_renewed, self.receive_renewed, self.cancel, self.cancel, self.forward, self.go,
            self.receive_in_order, self.receive_in_order, self.ack_in_order, self.ack_in_order, self.hide_in_order,
        ]  # fmt: skip

    # --- either front -------------------------------------------------------------------------------------------------

    def send(self) -> None:
        before = set(self.account.stored)
        super().send()
        self.account.in_order.stored |= self.account.stored - before

    def get(self, count: int, invisible_ms: int) -> list[Popped]:
        if invisible_ms < 10_000 or self.rng.random() < 0.4:
            return super().get(count, invisible_ms)
        return [_popped(message) for message in self.found(self.consumer, count=count, invisible_ms=invisible_ms)]

    def found(self, consumer: GrpcConsumer, **more: Any) -> list[Message]:
        """What a receive brings at once; one that waits is cancelled."""
        call = consumer.start(**more)
        if not call.ends:
            consumer.caller.cancel(call)
            return []
        answer = received(call)
        if answer.code not in NOTHING | {Code.OK}:
            raise Wrong(f"a receive is answered {answer.status}")
        return answer.messages

    def settle(self, popped: Popped, *, is_in_time: bool) -> None:
        body = bytes(popped[0].body)
        if body in self.account.renewed:
            code = self.push.ack(_handle(popped)).status.code
        elif self.rng.random() < 0.4:
            super().settle(popped, is_in_time=is_in_time)
            return
        else:
            code = self.consumer.ack(_handle(popped)).status.code
        if is_in_time and code != Code.OK:
            raise Wrong(f"{body!r} was acknowledged in time, which is answered {Code(code).name}")
        if is_in_time:
            self.account.renewed.discard(body)

    def change(self, popped: Popped, invisible_ms: int) -> Popped | None:
        body = bytes(popped[0].body)
        if body not in self.account.renewed and self.rng.random() < 0.4:
            return super().change(popped, invisible_ms)
        consumer = self.push if body in self.account.renewed else self.consumer
        answer = consumer.change(_handle(popped), invisible_ms)
        if answer.status.code != Code.OK:
            return None
        self.account.renewed.discard(body)
        return _with_handle(popped, answer.receipt_handle)

    # --- a push consumer ----------------------------------------------------------------------------------------------

    def receive_renewed(self) -> None:
        self.rig.chosen_queue = self.rng.randrange(100)
        messages = self.found(self.push, count=self.rng.randint(1, 4), renews=True)
        self.got([_popped(message) for message in messages], 60_000)
        for message in messages:
            self.account.held[message.body] = self.account.held[message.body][0], NEVER_MS
            self.account.renewed.add(message.body)

    def pass_time(self) -> None:
        since_ns = self.rig.clock.monotonic_ns() - WINDOW_MS * 1_000_000
        self.account.given_back = {body: at for body, at in self.account.given_back.items() if at > since_ns}
        self.push.caller.call(Rpc.HEARTBEAT, HeartbeatRequest(group=Resource(name="g")), HeartbeatResponse)
        self.rig.advance(self.rng.choice((1, 400, 1_100, 4_500, 12_000, 55_000)))

    def go(self) -> None:
        """The push consumer stops, and another one begins."""
        if self.rng.random() < 0.3:
            self.stop_push()
            self.push.connect(ClientType.PUSH_CONSUMER)

    def stop_push(self) -> None:
        request = NotifyClientTerminationRequest(group=Resource(name="g"))
        self.push.caller.call(Rpc.NOTIFY_CLIENT_TERMINATION, request, NotifyClientTerminationResponse)
        self.account.client_gone()

    # --- callers that are gone ----------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """A call is cancelled before what it finds can be answered."""
        consumer = self.rng.choice((self.consumer, self.ordered))
        whole = consumer.caller.begin

        def begin(rpc: Rpc, *, timeout_ms: int | None = None) -> Any:
            call = whole(rpc, timeout_ms=timeout_ms)
            call.is_wanted = False
            return call

        consumer.caller.begin = begin  # type: ignore[method-assign]
        call = consumer.start(invisible_ms=GONE_MS, attempt="gone", count=self.rng.randint(1, 8))
        consumer.caller.begin = whole  # type: ignore[method-assign]
        if not call.ends:
            self.rig.front.over(call)

    # --- dead letters -------------------------------------------------------------------------------------------------

    def forward(self) -> None:
        if not self.account.held:
            return
        body = self.rng.choice(sorted(self.account.held))
        popped, due_ms = self.account.held[body]
        is_in_time = self.rig.clock.now_ms() < due_ms
        consumer = self.push if body in self.account.renewed else self.consumer
        if is_in_time:
            self.account.stored.discard(body)
        code = consumer.forward(_handle(popped))
        if is_in_time and code != Code.OK:
            raise Wrong(f"{body!r} was forwarded in time, which is answered {Code(code).name}")
        if code == Code.OK:
            self.account.dead.add(body)
            self.account.acknowledged.add(body)
            self.account.renewed.discard(body)
            del self.account.held[body]

    # --- in order -----------------------------------------------------------------------------------------------------

    def receive_in_order(self) -> int:
        attempt = self.rng.choice(("one", "two"))
        invisible_ms = self.rng.choice((10_000, 20_000, LONGEST_MS))
        messages = self.found(self.ordered, count=self.rng.randint(1, 5), invisible_ms=invisible_ms, attempt=attempt)
        self.account.in_order.received(messages, attempt, self.rig.clock.now_ms())
        return len(messages)

    def ack_in_order(self) -> bool:
        """Acknowledge one message of each open batch; False where there is none in time."""
        account, now_ms = self.account.in_order, self.rig.clock.now_ms()
        found = [
            (queue_id, body)
            for queue_id, batch in account.batches.items()
            for body in self.rng.sample(sorted(batch.left), 1)
            if now_ms < batch.due_ms(body)
        ]
        for queue_id, body in found:
            account.stored.discard(body)  # even if the end comes before the answer
            if self.ordered.ack(account.batches[queue_id].left[body]).status.code != Code.OK:
                raise Wrong(f"{body!r} was acknowledged in time and in order, which is refused")
            account.acknowledged(queue_id, body)
        return bool(found)

    def hide_in_order(self) -> None:
        now_ms = self.rig.clock.now_ms()
        for batch in self.account.in_order.batches.values():
            body = self.rng.choice(sorted(batch.left))
            if now_ms < batch.due_ms(body):
                answer = self.ordered.change(batch.left[body], self.rng.choice((0, 5_000, LONGEST_MS)))
                if answer.status.code != Code.OK:
                    raise Wrong(f"{body!r} was hidden in time and in order, which is refused")
                batch.left[body] = answer.receipt_handle

    # --- what happens to all ------------------------------------------------------------------------------------------

    def delete_topic(self) -> None:
        sent = self.account.sent_count
        in_order, self.account.in_order = self.account.in_order, OrderAccount()
        super().delete_topic()
        if self.account.sent_count == sent:
            self.account.in_order = in_order

    def set_clock_back(self) -> None:
        before_ms = self.account.set_back_ms
        super().set_clock_back()
        if self.account.set_back_ms != before_ms:
            self.account.in_order.batches.clear()
            self.account.ahead |= self.account.held.keys()

    def restart(self) -> None:
        """After a crash somebody pops first: what a start passes over, behind what nobody popped since, is known in memory only."""
        if self.is_second:
            while self.pop(32):
                pass
        before = self.popper
        super().restart()
        if self.popper is not before:
            self.connect()

    def dead(self) -> set[bytes]:
        end = self.rig.store.max_offset("%DLQ%g", 0)
        return set(self.read("%DLQ%g", 0, self.rig.store.min_offset("%DLQ%g", 0), end)) if end else set()

    def finish(self) -> None:
        self.stop_push()
        super().finish()
        if self.account.dead - self.dead():
            raise Wrong(f"{sorted(self.account.dead - self.dead())} are no dead letters")
        self.finish_in_order()

    def finish_in_order(self) -> None:
        """Receive and acknowledge in order until nothing comes any more."""
        account = self.account.in_order
        for pause_ms in (LONGEST_MS + self.account.set_back_ms, *[LONGEST_MS] * 3):
            self.rig.advance(pause_ms)
            while self.receive_in_order():
                while self.ack_in_order():
                    pass
        if account.stored - account.over:
            raise Wrong(f"{sorted(account.stored - account.over)} are lost in order")


def _popped(message: Message) -> Popped:
    """A received message as a pop over remoting would have brought it."""
    words = message.system_properties.receipt_handle.split(" ")
    record = SimpleNamespace(
        body=message.body, queue_id=int(words[6]), queue_offset=int(words[7]), physical_offset=int(words[8])
    )
    return record, pop_retry_topic("g", "T", PopSource(words[4])), " ".join(words[:8])


def _handle(popped: Popped) -> str:
    record, _, receipt = popped
    return f"{receipt} {record.physical_offset}"


def _with_handle(popped: Popped, handle: str) -> Popped:
    record, topic, _ = popped
    return record, topic, handle.rsplit(" ", 1)[0]


def live(seed: int, length: int = 1) -> None:
    """A life, so many times longer than usual, and its end. Raises Wrong."""
    run(seed, length, FrontRig, ReceiveLife, ReceiveAccount)


def problems(seeds: range) -> Iterator[str]:
    for seed in seeds:
        try:
            live(seed)
        except Wrong as wrong:
            yield f"seed {seed}: {wrong}"


def test_all_accounts_agree_whatever_happens() -> None:
    assert list(problems(range(SEEDS))) == []


# --- planted bugs -------------------------------------------------------------------------------------------------------


def test_a_lost_message_of_a_gone_caller_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReceiveCalls, "_give_back", lambda self, receive: receive.left.clear())
    assert any(problems(range(200)))


def test_an_old_handle_beside_the_new_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = QueueInFlight._find

    def any_pop(self: QueueInFlight, offset: int, popped_ms: int) -> object:
        found = self.find(offset)
        return whole(self, offset, popped_ms if found is None else found.popped_ms)

    monkeypatch.setattr(QueueInFlight, "_find", any_pop)
    assert any(problems(range(200)))


def test_a_second_batch_in_order_while_the_first_is_open_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PopOrders, "blocks", lambda self, key, attempt_id, now_ms: False)
    assert any(problems(range(200)))


def test_a_dead_letter_that_is_not_stored_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(self: SendBacks, wish: GivenBack, told: Callable[[PutStatus], None], **more: bool) -> bool:
        told(PutStatus.PUT_OK)
        return True

    monkeypatch.setattr(SendBacks, "send_back", forgets)
    assert any(problems(range(200)))


def test_what_is_renewed_no_more_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldMessages, "take_due", lambda self, now_ms, limit: [])
    assert any(problems(range(200)))
