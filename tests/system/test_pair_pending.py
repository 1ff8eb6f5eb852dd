"""What waits at a master while another broker becomes it, in exchange and after a kill: transactions, pops, timers, clients of gRPC.

One group of three for all of it. The third broker has the address of the first master in its settings, and follows whoever leads.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from promoted_pair import LIMIT_S, PromotedPair, promoted_pair
from server_process import RawClient, ServedProcess, pull_fields, send_fields, until
from tests.worlds.grpc_client import Client

from orbitmq.protocol.grpc.message_prefix import with_prefix
from orbitmq.protocol.grpc.messages import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ClientType,
    Code,
    Duration,
    Message,
    MessageQueue,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    Settings,
    Subscription,
    SubscriptionEntry,
    SystemProperties,
    TelemetryCommand,
)
from orbitmq.protocol.names import GRPC_ENDPOINTS_NAMESPACE
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_records
from orbitmq.protocol.remoting.bodies import HeartbeatData, KVTable, ProducerData
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.timer_bodies import ChangeTimers, TimerSelector

PAID, POPPED, ORDERED, CALLED = TOPICS = ("paid", "popped", "ordered", "called")
PRODUCERS, POPPERS = "payments", "poppers"
COMMIT, ROLLBACK = 8, 12
HIDDEN_MS = 15_000
"""A popped message that nobody acknowledges comes back then."""
ASKED_AFTER_S = 8
"""A producer is asked about its half message then: the broker leads by then that answers it."""
SETTINGS = {
    "popCkStayBufferTime": 200,
    "flushConsumerOffsetInterval": 500,
    "popFromRetryProbability": 100,
    "transactionTimeOut": ASKED_AFTER_S * 1_000,
    "transactionCheckInterval": 86_400_000,
}
RECORDED_S = 1.5
"""By then checkpoints and offsets of what was popped are in the log: a crash leaves them."""
FOLLOWS_S = 2.0
"""Another slave follows the new master within this, on a machine that does nothing else."""


class Popped(NamedTuple):
    body: bytes
    topic: str
    offset: int
    receipt: str


class Master:
    """Requests to whoever leads."""

    def __init__(self, server: ServedProcess) -> None:
        self.client = server.client()

    def call(self, code: RequestCode, fields: dict[str, str], body: bytes = b"") -> Command:
        return self.client.call(code, fields, body)

    def send(self, topic: str, body: bytes, said: dict[str, str] | None = None, **more: object) -> Command:
        """Until both have it. A repeat of one that only the master took has the same key, and is judged like it."""
        fields = send_fields(topic, {"UNIQ_KEY": body.hex().rjust(32, "0").upper()[-32:]} | (said or {}), **more)
        answer = self.call(RequestCode.SEND_MESSAGE_V2, fields, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    # --- transactions ---------------------------------------------------------------------------------------------

    def half(self, body: bytes) -> Command:
        return self.send(PAID, body, {"TRAN_MSG": "true", "PGROUP": PRODUCERS}, f=4)

    def decide(self, sent: Command, decision: int) -> None:
        position = sent.fields.get("commitLogOffset") or str(int(sent.text("msgId")[16:], 16))
        fields = {
            "topic": PAID, "producerGroup": PRODUCERS, "commitLogOffset": position, "commitOrRollback": str(decision),
            "tranStateTableOffset": sent.fields.get("tranStateTableOffset") or sent.text("queueOffset"),
            "fromTransactionCheck": str("commitLogOffset" in sent.fields).lower(), "msgId": sent.text("transactionId"),
            "transactionId": sent.text("transactionId"),
        }  # fmt: skip
        answer = self.call(RequestCode.END_TRANSACTION, fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def asked_once(self) -> Command:
        """What this broker asks a producer of the group that says it is there."""
        self.say_producer()
        self.client.socket.settimeout(LIMIT_S)
        while (command := self.client.read()).code != RequestCode.CHECK_TRANSACTION_STATE or command.is_response:
            pass
        return command

    def say_producer(self) -> None:
        here = HeartbeatData(client_id="producer", producer_data_set=[ProducerData(group_name=PRODUCERS)])
        assert self.call(RequestCode.HEART_BEAT, {}, here.encode()).code == ResponseCode.SUCCESS

    # --- pops -----------------------------------------------------------------------------------------------------

    def pop(self, topic: str, count: int, *, order: bool = False) -> list[Popped]:
        fields = {
            "consumerGroup": POPPERS, "topic": topic, "queueId": "0", "maxMsgNums": str(count), "pollTime": "0", "bornTime": "0",
            "invisibleTime": str(HIDDEN_MS), "initMode": "0", "expType": "TAG", "exp": "*", "order": str(order).lower(),
        }  # fmt: skip
        answer = self.call(RequestCode.POP_MESSAGE, fields)
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.POLLING_TIMEOUT, answer.remark
            return []
        said = answer.fields
        starts = dict(entry.rsplit(" ", 1) for entry in said["startOffsetInfo"].split(";"))
        return [popped(record, topic, said, starts) for record in decode_records(bytes(answer.body))]

    def ack(self, one: Popped) -> int:
        fields = {
            "consumerGroup": POPPERS, "topic": one.topic, "queueId": "0", "extraInfo": one.receipt, "offset": str(one.offset),
        }  # fmt: skip
        return self.call(RequestCode.ACK_MESSAGE, fields).code

    # --- timers ---------------------------------------------------------------------------------------------------

    def recall(self, handle: str) -> Command:
        fields = {"producerGroup": PRODUCERS, "topic": PAID, "recallHandle": handle}
        return self.call(RequestCode.RECALL_MESSAGE, fields)

    def timer_status(self, handle: str) -> bytes:
        body = ChangeTimers(TimerSelector(topic=PAID, handle=handle)).encode()
        return bytes(self.call(RequestCode.TIMER_STATUS, {}, body).body)


def popped(record: Record, topic: str, said: dict[str, str], starts: dict[str, str]) -> Popped:
    receipt = decode_properties(record.properties).get("POP_CK") or (
        f"{starts['0 0']} {said['popTime']} {said['invisibleTime']} {said['reviveQid']} 0 pair 0 {record.queue_offset}"
    )
    words = receipt.split(" ")
    source = topic if words[4] == "0" else f"%RETRY%{POPPERS}_{topic}"
    return Popped(bytes(record.body), source, int(words[7]), receipt)


class Waiting:
    """What waits at a master, each message named after `act`."""

    def __init__(self, server: ServedProcess, endpoint: tuple[str, int], act: str) -> None:
        self.act = act
        master = Master(server)
        for number in range(3):
            master.send(POPPED, self.name("popped", number))
        self.popped = master.pop(POPPED, 3)
        assert [one.body for one in self.popped] == [self.name("popped", number) for number in range(3)]
        self.popped_s = time.monotonic()
        assert master.ack(self.popped[0]) == ResponseCode.SUCCESS
        for number in range(2):
            master.send(ORDERED, self.name("ordered", number))
        (self.ordered,) = master.pop(ORDERED, 1, order=True)
        master.send(CALLED, self.name("called", 0))
        self.handle = asyncio.run(receive(endpoint))
        due_ms = str(int(time.time() * 1_000) + 600_000)
        self.recalled = master.send(PAID, self.name("recalled", 0), {Property.TIMER_DELIVER_MS: due_ms}).text(
            "recallHandle"
        )
        time.sleep(RECORDED_S)
        self.halves = [master.half(self.name("half", number)) for number in range(3)]
        master.send(PAID, self.name("timed", 0), {"TIMER_DELAY_SEC": "2"})

    def name(self, what: str, number: int) -> bytes:
        return f"{self.act}-{what}-{number}".encode()

    def settle(self, server: ServedProcess, endpoint: tuple[str, int], *, was_killed: bool) -> None:
        """At the new master."""
        master = Master(server)
        until(lambda: server.runtime()["orbitmqReplicaCopiesCounted"] != "0", LIMIT_S, "a slave that counts")
        master.decide(self.halves[0], COMMIT)
        master.decide(self.halves[1], ROLLBACK)
        assert master.ack(self.popped[1]) == ResponseCode.SUCCESS
        given = master.pop(ORDERED, 1, order=True)
        if given:  # after a crash a queue may be given out anew, from the same offset
            assert was_killed
            assert given[0].body == self.ordered.body
        assert master.ack((given or [self.ordered])[0]) == ResponseCode.SUCCESS
        (second,) = master.pop(ORDERED, 1, order=True)
        assert second.body == self.name("ordered", 1)
        assert master.ack(second) == ResponseCode.SUCCESS
        asyncio.run(acknowledge(endpoint, self.handle, self.name("called", 1)))
        for _ in range(2):
            assert master.recall(self.recalled).code == ResponseCode.SUCCESS
        assert b"RECALLED" in master.timer_status(self.recalled).upper()
        question = master.asked_once()
        assert question.text("transactionId") == self.halves[2].text("transactionId")
        master.decide(question, COMMIT)
        again: list[Popped] = []

        def comes_back() -> bool:
            again.extend(master.pop(POPPED, 8))
            return bool(again)

        until(comes_back, LIMIT_S, "a popped message that comes back")
        assert time.monotonic() - self.popped_s > HIDDEN_MS / 1_000 - 1
        assert [one.body for one in again] == [self.name("popped", 2)]
        assert master.ack(again[0]) == ResponseCode.SUCCESS

    def stored_once(self) -> list[bytes]:
        return [self.name("half", 0), self.name("half", 2), self.name("timed", 0)]


# --- gRPC ---------------------------------------------------------------------------------------------------------------


def endpoint_of(pair: PromotedPair) -> tuple[str, int]:
    """Where the master of the pair serves gRPC, as the name server tells other brokers."""
    with RawClient(pair.names.name_port) as client:
        answer = client.call(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": GRPC_ENDPOINTS_NAMESPACE})
    host, _, port = KVTable.decode(bytes(answer.body)).table["pair"].rpartition(":")
    return host, int(port)


async def connected(endpoint: tuple[str, int]) -> Client:
    client = Client(*await asyncio.open_connection(*endpoint))
    subscription = Subscription(
        group=Resource(name=POPPERS), subscriptions=[SubscriptionEntry(topic=Resource(name=CALLED))]
    )
    settings = Settings(client_type=ClientType.SIMPLE_CONSUMER, subscription=subscription)
    client.send(
        client.begin("Telemetry", client_id="caller"),
        with_prefix(TelemetryCommand(settings=settings).SerializeToString()),
    )
    return client


async def called(client: Client, rpc: str, request: bytes) -> list[bytes]:
    """The messages of the answer."""
    stream_id = client.begin(rpc, client_id="caller")
    client.send(stream_id, with_prefix(request), end=True)
    assert await client.ended(stream_id) == {"grpc-status": "0"}
    content, found, at = client.answers[stream_id], [], 0
    while at < len(content):
        size = int.from_bytes(content[at + 1 : at + 5], "big")
        found.append(bytes(content[at + 5 : at + 5 + size]))
        at += 5 + size
    return found


async def received(client: Client) -> list[Message]:
    wanted = ReceiveMessageRequest(
        group=Resource(name=POPPERS),
        message_queue=MessageQueue(topic=Resource(name=CALLED), id=-1),
        batch_size=1,
        invisible_duration=Duration(seconds=60),
        long_polling_timeout=Duration(seconds=5),
    )
    items = [
        ReceiveMessageResponse.FromString(item)
        for item in await called(client, "ReceiveMessage", wanted.SerializeToString())
    ]
    return [item.message for item in items if item.WhichOneof("content") == "message"]


async def receive(endpoint: tuple[str, int]) -> str:
    """The receipt handle of the one message that there is."""
    async with asyncio.timeout(LIMIT_S):
        client = await connected(endpoint)
        (message,) = await received(client)
        client.writer.close()
    return message.system_properties.receipt_handle


async def acknowledge(endpoint: tuple[str, int], handle: str, body: bytes) -> None:
    """What was received of the former master; then a send, and a receive of that and nothing else."""
    async with asyncio.timeout(LIMIT_S):
        client = await connected(endpoint)
        entry = AckMessageEntry(message_id="1", receipt_handle=handle)
        ack = AckMessageRequest(group=Resource(name=POPPERS), topic=Resource(name=CALLED), entries=[entry])
        (answer,) = await called(client, "AckMessage", ack.SerializeToString())
        assert AckMessageResponse.FromString(answer).status.code == Code.OK
        system = SystemProperties(message_id=body.decode())
        message = Message(topic=Resource(name=CALLED), body=body, system_properties=system)
        (answer,) = await called(client, "SendMessage", SendMessageRequest(messages=[message]).SerializeToString())
        assert SendMessageResponse.FromString(answer).status.code == Code.OK
        (got,) = await received(client)
        assert got.body == body
        entry = AckMessageEntry(message_id="2", receipt_handle=got.system_properties.receipt_handle)
        ack = AckMessageRequest(group=Resource(name=POPPERS), topic=Resource(name=CALLED), entries=[entry])
        await called(client, "AckMessage", ack.SerializeToString())
        client.writer.close()


# --- the group ----------------------------------------------------------------------------------------------------------


def bodies(server: ServedProcess, topic: str) -> list[bytes]:
    found: list[bytes] = []
    with RawClient(server.port) as client:
        while (answer := client.call(RequestCode.PULL_MESSAGE, pull_fields(topic, offset=len(found)))).code == 0:
            found += [bytes(record.body) for record in decode_records(bytes(answer.body))]
    return found


def seconds_until_followed(slave: ServedProcess, log_before: int) -> float:
    began = time.monotonic()
    until(lambda: "following the master at" in slave.log()[log_before:], LIMIT_S, "another slave that follows")
    return time.monotonic() - began


def level(*servers: ServedProcess) -> bool:
    return len({server.runtime()["orbitmqReplicaLogEnd"] for server in servers}) == 1


def test_what_waits_is_settled_once_at_the_next_master(tmp_path: Path, figure: Callable[[str], None]) -> None:
    with promoted_pair(tmp_path, "SYNC_MASTER", slaveReadEnable="true", **SETTINGS) as pair:
        third = pair.another("third", brokerId=2)
        for topic in TOPICS:
            pair.create_topic(topic, 1)
        until(lambda: pair.master.runtime()["orbitmqReplicaCopiesCounted"] == "2", LIMIT_S, "two slaves that count")
        first = pair.master
        waiting = Waiting(first, endpoint_of(pair), "exchanged")
        said = len(third.log())
        pair.switch(successor=1)
        followed_s = seconds_until_followed(third, said)
        figure(f"another slave follows {followed_s:.2f} s after an exchange, by a name server, against its settings")
        assert "its haMasterAddress: it asks at" in third.log()
        waiting.settle(pair.master, endpoint_of(pair), was_killed=False)

        killed = Waiting(pair.master, endpoint_of(pair), "killed")
        until(lambda: level(pair.master, pair.slave, third), LIMIT_S, "three logs of one length")
        pair.master.kill()
        said = len(third.log())
        pair.promote()
        seconds_until_followed(third, said)
        killed.settle(pair.master, endpoint_of(pair), was_killed=True)

        paid = Counter(bodies(pair.master, PAID))
        assert paid == Counter([*waiting.stored_once(), *killed.stored_once()])
        for topic in (POPPED, ORDERED, CALLED):
            assert set(Counter(bodies(pair.master, topic)).values()) == {1}
        until(lambda: all(bodies(third, topic) == bodies(pair.master, topic) for topic in TOPICS), LIMIT_S, "a copy")
