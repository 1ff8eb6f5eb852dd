"""Somebody who may read the topic `mine`, publish to `out`, and nothing else, asks for everything in every way that the header fields and
bodies of the requests offer. What belongs to `theirs` and its group is never shown and never changed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.callers import Grant, UsersInMemory
from tests.unit.broker.conftest import NOW_MS, SMALL_STORE, STORE_HOST, ListPeer
from tests.unit.broker.test_led_to import LedRig, definition
from tests.unit.broker.transactions.conftest import COMMIT, GROUP

from orbitmq.access import request_needs
from orbitmq.access.failures import FailedAttempts
from orbitmq.access.users import User, UserType
from orbitmq.access.users_gate import GateRules, UsersGate
from orbitmq.broker.settings import BrokerSettings
from orbitmq.clock import ManualClock
from orbitmq.protocol.ids import encode_offset_id
from orbitmq.protocol.names import HALF_TOPIC, RECURRING_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.recall_handles import encode_handle
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.recurring_bodies import RecurringChangeBody, RecurringQuery
from orbitmq.protocol.remoting.requests import REQUESTS, Action, FieldType, RequestRow, RequestServer
from orbitmq.protocol.remoting.timer_bodies import ChangeTimers, TimerQuery, TimerSelector
from orbitmq.protocol.remoting.transaction_bodies import TransactionName, TransactionQuery
from orbitmq.protocol.signing import Credentials

ROOT, EVE = User("root", "secret-of-root", UserType.SUPER), User("eve", "secret-of-eve")
SECRET = b"for nobody else"
SECRETS = (SECRET, b64encode(SECRET))
NAMES = (b"theirs", b"shop")
"""Told to nobody who has not named them."""
HANDLE = encode_handle("theirs", "broker-a", NOW_MS + 60_000, "U1")
QUEUES = [
    ("theirs", 0), (TIMER_TOPIC, 0), (SCHEDULE_TOPIC, 2), (HALF_TOPIC, 0), ("%DLQ%shop", 0), (RECURRING_TOPIC, 0),
]  # fmt: skip
"""Where something of `theirs` lies."""
TOPICS = ("mine", "out", *(topic for topic, _ in QUEUES), "%RETRY%shop", "")
ORDINARY = {
    "maxMsgNums": "32", "maxNum": "32", "subscription": "*", "expressionType": "TAG", "key": "order-1", "exp": "*", "expType": "TAG",
    "commitOrRollback": "12", "delayLevel": "-1", "producerGroup": GROUP, "tranStateTableOffset": "0", "transactionId": "",
    "endTimestamp": str(2 * NOW_MS), "clientId": "c0", "clientID": "c0", "perm": "0", "count": "9", "bornTime": str(NOW_MS),
    "extraInfo": "0 0 0 0 0 broker-a 0 0", "invisibleTime": "1000", "a": GROUP, "c": "TBW102", "d": "4", "i": "", "m": "false",
    "readQueueNums": "1", "writeQueueNums": "1", "statsName": "TOPIC_PUT_NUMS", "statsKey": "theirs", "properties": "",
}  # fmt: skip
"""What stands in fields that name no topic, group or place."""


class AttackedRig(LedRig):
    who = ROOT

    def give(self, command: Command, peer: ListPeer) -> Command | None:
        credentials = Credentials(self.who.name, self.who.password)
        command.fields, command.has_fields = credentials.signed(command.fields, command.body), True
        return super().give(command, peer)

    def state(self) -> dict[str, Any]:
        """Everything about `theirs` and its group."""
        broker, daily = self.broker, self.recurrences.get("daily")
        assert daily is not None
        return {
            "timers": sorted((facts.topic, facts.deliver_ms) for facts in self.timers.facts.values()),
            "undecided": [(known.topic, known.ending, known.check_count) for known in self.transactions.undecided],
            "recurring": (daily.message.topic, daily.paused, daily.generation),
            "offsets": {group: broker.offsets.queues(group, "theirs") for group in ("shop", "eve")},
            "ends": {queue: self.store.max_offset(*queue) for queue in QUEUES},
            "topic": broker.topics.get("theirs"),
            "group": broker.groups.known("shop"),
        }


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[AttackedRig]:
    users = UsersInMemory(ROOT, EVE)
    users.grant(
        EVE,
        Grant("Topic:mine", frozenset({Action.SUB})),
        Grant("Topic:out", frozenset({Action.PUB})),
        Grant("Group:eve", frozenset({Action.SUB})),
    )

    class Attacked(AttackedRig):
        gate = UsersGate(users, GateRules("DefaultCluster"), FailedAttempts(ManualClock(NOW_MS)))

    rig = Attacked(tmp_path / "store", BrokerSettings(recall_message_enable=True, broker_name="broker-a"), SMALL_STORE)
    for topic in ("mine", "out"):
        rig.sent_ok(topic, b"shown", {"KEYS": "order-1"})
    rig.sent_ok("theirs", SECRET, {"KEYS": "order-1", "UNIQ_KEY": "U0"})
    rig.sent_ok("theirs", SECRET, {"KEYS": "order-1", "UNIQ_KEY": "U1", "TIMER_DELIVER_MS": str(NOW_MS + 60_000)})
    rig.sent_ok("theirs", SECRET, {"DELAY": "3"})
    rig.half("theirs", SECRET, UNIQ_KEY="U2")
    rig.end(rig.half("theirs", SECRET, UNIQ_KEY="U3"), COMMIT)
    rig.call(RequestCode.PUT_RECURRING, None, definition("theirs").replace(b'"eA=="', b'"%b"' % SECRETS[1]))
    rig.heartbeat(rig.peer(), "c0", "shop", ["theirs"])
    rig.call(RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": rig.place("theirs"), "group": "shop", "delayLevel": -1})
    rig.broker.offsets.commit("shop", "theirs", 0, 1)
    yield rig
    rig.who = ROOT
    rig.close()


def bodies(rig: AttackedRig, topic: str) -> list[bytes]:
    """What may stand in bodies of our own requests."""
    selectors = [
        TimerSelector(handle=HANDLE), TimerSelector(topic=topic, message_id="U1"), TimerSelector(topic=topic, key="order-1", all=True),
        TimerSelector(topic=topic, handle=HANDLE),
    ]  # fmt: skip
    named = [
        definition(topic), RecurringChangeBody("daily", paused=True).encode(), RecurringQuery(name="daily", topic=topic).encode(),
        RecurringQuery(topic=topic or None).encode(), TimerQuery(topic=topic or None).encode(),
        TransactionQuery(topic=topic or None).encode(), TransactionName("U2").encode(), TransactionName("U3").encode(),
        TransactionName(encode_offset_id(STORE_HOST, rig.place(HALF_TOPIC))).encode(),
    ]  # fmt: skip
    text = topic.encode()
    lists = [
        b'{"topicConfigList":[{"topicName":"%b","readQueueNums":1,"writeQueueNums":1,"perm":0}]}' % text,
        b'{"groupName":"shop","consumeEnable":false}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"eve","subscriptionDataSet":[{"topic":"%b","subString":"*"}]}]}'
        % text,
        b'{"topic":"%b","consumerGroup":"eve","clientId":"c","strategyName":"AVG","mode":"POP"}' % text,
    ]
    return [b"", SECRET[:3], *lists, *named, *(ChangeTimers(one).encode() for one in selectors)]


def fields_of(row: RequestRow, topic: str, group: str, place: int) -> dict[str, str]:
    kinds = {FieldType.BOOLEAN: "false", FieldType.TEXT: "", FieldType.BOUNDARY: "LOWER"}
    fields = {field.name: ORDINARY.get(field.name, kinds.get(field.type, "0")) for field in row.header.request}
    for name in fields:
        if name in ("topic", "b", "topicList", "originTopic"):
            fields[name] = topic
        elif name in ("consumerGroup", "group", "groupName", "srcGroup", "destGroup", "compareGroup"):
            fields[name] = group
        elif name in ("offset", "commitLogOffset") and row.code is not RequestCode.ACK_MESSAGE:
            fields[name] = str(place)
        elif name == "recallHandle":
            fields[name] = HANDLE
        elif name in ("msgId", "originMsgId"):
            fields[name] = encode_offset_id(STORE_HOST, place)
    if row.code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        fields["sysFlag"] = "4"
    return fields


def shown(rig: AttackedRig, row: RequestRow, fields: dict[str, str], body: bytes) -> tuple[int | None, bytes]:
    """The code of the answer, and everything that came back, to this connection or any of its clients."""
    peer = rig.peer()
    answer = rig.try_call(row.code, fields, body, peer=peer)
    answers = [*([] if answer is None else [answer]), *peer.sent, *(question.command for question in peer.questions)]
    texts = [repr((one.remark, one.fields)).encode() + bytes(one.body) for one in answers]
    rig.broker.peer_closed(peer)
    return None if answer is None else answer.code, b"".join(texts)


def hidden_names(fields: dict[str, str], body: bytes) -> list[bytes]:
    """Names that the request does not say; the handle says one."""
    said = b" ".join([*map(str.encode, fields.values()), body])
    return [name for name in NAMES if name not in said and not (name == b"theirs" and HANDLE.encode() in said)]


def attack(rig: AttackedRig) -> int:
    """Ask for everything as Eve; how many requests were let through."""
    places = [rig.records(*queue)[0].physical_offset for queue in QUEUES]
    before, let_through = rig.state(), 0
    rig.who = EVE
    for row in REQUESTS.values():
        if RequestServer.BROKER not in row.served_by:
            continue
        has_place = bool({"offset", "commitLogOffset", "msgId"} & {field.name for field in row.header.request})
        groups = ("eve", "shop") if any("roup" in field.name for field in row.header.request) else ("eve",)
        for topic, group, place in product(TOPICS, groups, places if has_place else places[:1]):
            fields = fields_of(row, topic, group, place)
            for body in (b"x",) if fields else bodies(rig, topic):
                code, seen = shown(rig, row, fields, body)
                let_through += code != ResponseCode.NO_PERMISSION
                hidden = [*SECRETS, *hidden_names(fields, body)]
                assert not any(secret in seen for secret in hidden), (row.code.name, fields, body, seen)
        assert rig.state() == before, row.code.name
    return let_through


def test_two_permissions_are_not_a_third(rig: AttackedRig) -> None:
    assert attack(rig) > 100  # what the two permissions are good for


def test_planted_nobody_asks_where_a_request_leads(rig: AttackedRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_needs, "_in_record", lambda command, led_to: [])
    with pytest.raises(AssertionError):
        attack(rig)
