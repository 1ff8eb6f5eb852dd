"""Exchanges between released clients and the Java broker, replayed: our broker must answer as it did.

For each exchange a broker is prepared so that the recorded answer is the right one (the topic exists, messages lie where
the answer says), the recorded request frame is handed over as it is, and response code and names of the header fields
are compared; for pulls and offsets also the values. What differs on purpose stands in `DIFFERENT`, by name and reason.

The number of exchanges that agreed, per request code, is kept in `orbitmq/cli/coverage.json`, which `orbitmq protocol
coverage` shows. Run with ORBITMQ_WRITE_COVERAGE=1 to renew it; other servers' codes in it are left alone.
"""

from __future__ import annotations

import base64
import json
import lzma
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orbitmq.protocol.names import topic_name_problem
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting.bodies import (
    BatchAckBody,
    MessageRequestMode,
    MessageRequestModes,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    SetMessageRequestModeRequest,
    SubscriptionGroupConfig,
    TopicConfig,
)
from orbitmq.protocol.remoting.codes import OWN_CODES_FROM
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.fastjson import loads
from orbitmq.protocol.remoting.frame import Command, decode
from orbitmq.protocol.remoting.requests import REQUESTS

VECTORS = Path(__file__).parents[2] / "vectors" / "remoting"

DIFFERENT = {
    "empty queue": "a group without an offset begins an empty queue at 0, so that no message can be skipped",
    "reset without the consumer": "offsets are reset by the broker; it need not ask clients that may be offline",
    "reset of an unknown group": "recorded with server-side reset off; with it on, RocketMQ answers 26 as we do",
    "timer": "timer messages are refused until timers exist",
}


class Exchange(NamedTuple):
    number: int
    sender: str
    request: Command
    answer: Command

    @property
    def label(self) -> str:
        return f"{self.number}-{self.request.code}-{self.answer.code}-{self.sender.replace(' ', '-')}"


@cache
def exchanges() -> list[Exchange]:
    """Every recorded request to a broker with its answer."""
    requests: dict[int, tuple[str, Command]] = {}
    answers: dict[int, Command] = {}
    for path in sorted(VECTORS.glob("*.jsonl.xz")):
        with lzma.open(path, "rt") as lines:
            for line in lines:
                row = json.loads(line)
                number = row.get("exchange")
                if number is None:
                    continue
                if row["direction"] == "request":
                    requests[number] = (row["from"], decode(base64.b64decode(row["frame_b64"])))
                elif row["from"] == "java-5.3.3 broker":
                    answers[number] = decode(base64.b64decode(row["frame_b64"]))
    return [Exchange(number, *requests[number], answers[number]) for number in sorted(answers) if number in requests]


# --- preparing a broker ---------------------------------------------------------------------------------------------


def field(exchange: Exchange, *names: str) -> str:
    for name in names:
        if name in exchange.request.fields:
            return exchange.request.fields[name]
    return ""


def put_topic(rig: Any, topic: str, queues: int = 4, perm: int = 6) -> None:
    if topic and rig.broker.topics.get(topic) is None:
        rig.broker.topics.put(
            TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm), {}
        )


def put_group(rig: Any, group: str, **more: Any) -> None:
    if group:
        rig.broker.groups.put(SubscriptionGroupConfig(group_name=group, **more))


ILLEGAL_QUEUE = frozenset({ResponseCode.INVALID_PARAMETER, ResponseCode.MESSAGE_ILLEGAL})
"""Answers to requests that name a queue beyond those of the topic."""


def prepare_common(rig: Any, exchange: Exchange) -> None:
    """The topic and the group that the request names, unless their absence is the answer."""
    code = exchange.answer.code
    topic, group = field(exchange, "topic", "b", "originTopic"), field(exchange, "consumerGroup", "group", "srcGroup")
    queue_id = exchange.request.int32("queueId", exchange.request.int32("e"))
    if code != ResponseCode.TOPIC_NOT_EXIST and topic_name_problem(topic) is None:
        put_topic(rig, topic, 4 if code in ILLEGAL_QUEUE else max(4, queue_id + 1))
    if code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
        put_group(rig, group, consume_enable=exchange.answer.text("forbiddenType") != "2")


def prepare_pull(rig: Any, exchange: Exchange) -> None:
    """As many messages as the answer's maximum; those from the wanted offset on pass the filter unless nothing did."""
    fields, answer = exchange.request.fields, exchange.answer
    topic, group, queue_id = fields.get("topic", ""), fields.get("consumerGroup", ""), exchange.request.int32("queueId")
    passes = answer.code != ResponseCode.PULL_RETRY_IMMEDIATELY
    expression = fields.get("subscription") or ("*" if passes else "wanted")
    version = exchange.request.integer("subVersion")
    known = version - 1 if answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST else version
    rig.heartbeat(rig.peer(), "someone", group, [topic], sub_string=expression, sub_version=known)
    tag = expression.split("||")[0].strip() if passes and expression != "*" else "tag of nobody"
    for _ in range(answer.integer("maxOffset")):
        rig.sent_ok(topic, b"x", {"TAGS": tag}, queue_id=queue_id)


def prepare_offset(rig: Any, exchange: Exchange) -> None:
    fields = exchange.request.fields
    stored = exchange.answer.integer("offset")
    if exchange.answer.code == ResponseCode.SUCCESS and stored:
        rig.broker.offsets.commit(fields["consumerGroup"], fields["topic"], exchange.request.int32("queueId"), stored)


def prepare_queue(rig: Any, exchange: Exchange) -> None:
    """A queue with as many messages as make the recorded offset possible."""
    topic, queue_id = field(exchange, "topic"), exchange.request.int32("queueId")
    rig.clock.set_wall(exchange.request.integer("timestamp", rig.clock.now_ms()))
    wanted = exchange.answer.integer("offset")
    for _ in range(wanted if exchange.request.code == RequestCode.GET_MAX_OFFSET else 1):
        rig.sent_ok(topic, b"x", queue_id=queue_id)


def prepare_record(rig: Any, exchange: Exchange) -> None:
    """A message; the request asks for the place where it lies here instead of the recorded one."""
    if exchange.answer.code == ResponseCode.SUCCESS:
        rig.sent_ok("Stored", b"x")
        exchange.request.fields["offset"] = str(rig.records("Stored")[0].physical_offset)


def prepare_key(rig: Any, exchange: Exchange) -> None:
    rig.clock.set_wall(exchange.request.integer("beginTimestamp") + 1_000)
    key = field(exchange, "key")
    name = "UNIQ_KEY" if exchange.request.boolean("_UNIQUE_KEY_QUERY") else "KEYS"
    rig.sent_ok(field(exchange, "topic"), b"x", {name: key})


def prepare_member(rig: Any, exchange: Exchange) -> None:
    group = field(exchange, "consumerGroup", "group", "producerGroup")
    if exchange.answer.code == ResponseCode.SUCCESS:
        rig.heartbeat(rig.peer(), "someone", group, [field(exchange, "topic") or "T"], producer=group)


def prepare_asked(rig: Any, exchange: Exchange) -> None:
    """A client that will answer as the recorded one did, and the message it is asked to consume."""
    if exchange.answer.code == ResponseCode.SUCCESS:
        client = exchange.request.fields.get("clientId", "someone")
        rig.heartbeat(rig.answering_peer(exchange.answer), client, field(exchange, "consumerGroup", "group"), ["T"])
    rig.sent_ok("Stored", b"x")
    if "msgId" in exchange.request.fields:
        place = rig.records("Stored")[0].physical_offset
        exchange.request.fields["msgId"] = exchange.request.fields["msgId"][:16] + f"{place:016X}"


def prepare_units(rig: Any, exchange: Exchange) -> None:
    rig.sent_ok(field(exchange, "topic"), b"x")
    rig.heartbeat(rig.peer(), "someone", field(exchange, "consumerGroup") or "other", [field(exchange, "topic")])


def prepare_subscriber(rig: Any, exchange: Exchange) -> None:
    """A member whose group has consumed a message of each queue."""
    group, topic = field(exchange, "group", "consumerGroup"), field(exchange, "topic") or "T"
    if exchange.answer.code != ResponseCode.SUCCESS:
        return
    put_topic(rig, topic)
    rig.heartbeat(rig.peer(), "someone", group, [topic], sub_string="TagA || TagB")
    for queue_id in range(4):
        rig.sent_ok(topic, b"x", queue_id=queue_id)
        rig.broker.offsets.commit(group, topic, queue_id, 1)


def prepare_requester(rig: Any, exchange: Exchange) -> None:
    """The client that asked, which takes the reply."""
    if exchange.answer.code == ResponseCode.SUCCESS:
        client = decode_properties(field(exchange, "properties", "i"))["REPLY_TO_CLIENT"]
        rig.heartbeat(rig.answering_peer(exchange.answer), client, producer="askers")


def prepare_pop(rig: Any, exchange: Exchange) -> None:
    """The group stands where the recorded pop began, and as many messages follow as were taken, or are said to be left."""
    fields, answer = exchange.request.fields, exchange.answer
    born = exchange.request.integer("bornTime")
    if born:
        rig.clock.set_wall(born)
    group, topic, queue_id, start = fields["consumerGroup"], fields["topic"], exchange.request.int32("queueId"), 0
    if info := answer.fields.get("startOffsetInfo"):
        _, queue_id, start = map(int, info.split(" "))
    for number in range(4):
        rig.broker.offsets.commit(group, topic, number, start if number == queue_id else 0)
    for _ in range(start + max(answer.integer("restNum"), answer.code == ResponseCode.SUCCESS and start > 0)):
        rig.sent_ok(topic, b"x", {"TAGS": "A"}, queue_id=queue_id)
    if exchange.request.code == RequestCode.NOTIFICATION and answer.boolean("hasMsg"):
        rig.sent_ok(topic, b"x")


def prepare_popped(rig: Any, exchange: Exchange) -> None:
    """The message is in flight since the pop that the receipt names."""
    request, fields = exchange.request, exchange.request.fields
    if exchange.answer.code != ResponseCode.SUCCESS:
        return
    if request.code == RequestCode.BATCH_ACK_MESSAGE:
        entry = BatchAckBody.decode(bytes(request.body)).acks[0]
        group, topic, queue_id, popped, start = (
            entry.consumer_group, entry.topic, entry.queue_id, entry.pop_time, entry.start_offset,
        )  # fmt: skip
        end = start + 2
        put_topic(rig, topic)
    else:
        group, topic, queue_id, end = fields["consumerGroup"], fields["topic"], request.int32("queueId"), 1
        start, popped = map(int, fields["extraInfo"].split(" ")[:2])
        end = request.integer("offset") + 1
    rig.clock.set_wall(popped)
    for _ in range(end):
        rig.sent_ok(topic, b"x", queue_id=queue_id)
    rig.broker.offsets.commit(group, topic, queue_id, start)
    pop = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "maxMsgNums": 32, "invisibleTime": 60_000}
    assert rig.call(RequestCode.POP_MESSAGE, pop).code == ResponseCode.SUCCESS


def prepare_assignment(rig: Any, exchange: Exchange) -> None:
    """A group of one member, whose mode is that of the recorded queues."""
    asked = QueryAssignmentRequest.decode(bytes(exchange.request.body))
    given = QueryAssignmentResponse.decode(bytes(exchange.answer.body)).message_queue_assignments or []
    put_topic(rig, asked.topic, 1)
    put_group(rig, asked.consumer_group)
    rig.heartbeat(rig.peer(), asked.client_id, asked.consumer_group, [asked.topic])
    if given[0].mode is MessageRequestMode.POP:
        set_mode(rig, asked.topic, asked.consumer_group)


def prepare_mode(rig: Any, exchange: Exchange) -> None:
    mode = SetMessageRequestModeRequest.decode(bytes(exchange.request.body))
    put_topic(rig, mode.topic)
    put_group(rig, mode.consumer_group)


def prepare_modes(rig: Any, exchange: Exchange) -> None:
    for topic, groups in MessageRequestModes.decode(bytes(exchange.answer.body)).message_request_mode_map.items():
        put_topic(rig, topic)
        for group in groups:
            put_group(rig, group)
            set_mode(rig, topic, group)


def set_mode(rig: Any, topic: str, group: str) -> None:
    mode = SetMessageRequestModeRequest(topic=topic, consumer_group=group, mode=MessageRequestMode.POP)
    assert rig.call(RequestCode.SET_MESSAGE_REQUEST_MODE, None, mode.encode()).code == ResponseCode.SUCCESS


def prepare_retention(rig: Any, exchange: Exchange) -> None:
    rig.broker.rooms.administration.upkeep.request_retention = lambda: None


PREPARE: dict[int, Callable[[Any, Exchange], None]] = {
    RequestCode.PULL_MESSAGE: prepare_pull,
    RequestCode.LITE_PULL_MESSAGE: prepare_pull,
    RequestCode.QUERY_CONSUMER_OFFSET: prepare_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: prepare_queue,
    RequestCode.GET_MAX_OFFSET: prepare_queue,
    RequestCode.GET_MIN_OFFSET: prepare_queue,
    RequestCode.GET_EARLIEST_MSG_STORETIME: prepare_queue,
    RequestCode.VIEW_MESSAGE_BY_ID: prepare_record,
    RequestCode.CONSUMER_SEND_MSG_BACK: prepare_record,
    RequestCode.QUERY_MESSAGE: prepare_key,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: prepare_member,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: prepare_member,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: prepare_member,
    RequestCode.GET_CONSUMER_RUNNING_INFO: prepare_asked,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: prepare_asked,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: prepare_asked,
    RequestCode.QUERY_CONSUME_QUEUE: prepare_units,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: prepare_subscriber,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: prepare_subscriber,
    RequestCode.QUERY_CONSUME_TIME_SPAN: prepare_subscriber,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: prepare_subscriber,
    RequestCode.QUERY_CORRECTION_OFFSET: prepare_subscriber,
    RequestCode.GET_CONSUME_STATS: prepare_subscriber,
    RequestCode.GET_ALL_CONSUMER_OFFSET: prepare_subscriber,
    RequestCode.SEND_REPLY_MESSAGE: prepare_requester,
    RequestCode.SEND_REPLY_MESSAGE_V2: prepare_requester,
    RequestCode.DELETE_EXPIRED_COMMITLOG: prepare_retention,
    RequestCode.QUERY_ASSIGNMENT: prepare_assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: prepare_mode,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: prepare_modes,
    RequestCode.POP_MESSAGE: prepare_pop,
    RequestCode.PEEK_MESSAGE: prepare_pop,
    RequestCode.NOTIFICATION: prepare_pop,
    RequestCode.ACK_MESSAGE: prepare_popped,
    RequestCode.BATCH_ACK_MESSAGE: prepare_popped,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: prepare_popped,
}

PLACE = "where a message lies follows from what the recorded log held before"
MOMENT = "the moment of the recording"
REVIVE = "which of RocketMQ's revive queues was next; there is one place for what is in flight here"
HELD = "what the recorded broker held besides; which members a body has is compared"

VALUES_NOT_COMPARED: dict[int, dict[str, str]] = {
    RequestCode.SEND_MESSAGE: {
        "msgId": PLACE,
        "queueOffset": PLACE,
        "transactionId": "the client sent none: the broker makes one",
    },
    RequestCode.SEND_MESSAGE_V2: {"msgId": PLACE, "queueOffset": PLACE},
    RequestCode.SEND_BATCH_MESSAGE: {"msgId": PLACE, "queueOffset": PLACE},
    RequestCode.SEND_REPLY_MESSAGE: {"msgId": PLACE, "queueOffset": PLACE},
    RequestCode.SEND_REPLY_MESSAGE_V2: {"msgId": PLACE, "queueOffset": PLACE},
    RequestCode.QUERY_MESSAGE: {"indexLastUpdatePhyoffset": PLACE, "indexLastUpdateTimestamp": MOMENT},
    RequestCode.GET_BROKER_CONFIG: {"version": MOMENT},
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: {"offset": PLACE},
    RequestCode.GET_EARLIEST_MSG_STORETIME: {"timestamp": MOMENT},
    RequestCode.POP_MESSAGE: {"popTime": MOMENT, "reviveQid": REVIVE},
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: {"popTime": MOMENT, "reviveQid": REVIVE},
}
"""Values of header fields that are not compared, and why. All others are."""

BODIES_NOT_COMPARED: dict[int, str] = {
    RequestCode.PULL_MESSAGE: "records; tests/unit/protocol compares them byte by byte",
    RequestCode.LITE_PULL_MESSAGE: "records",
    RequestCode.VIEW_MESSAGE_BY_ID: "a record",
    RequestCode.QUERY_MESSAGE: "records",
    RequestCode.POP_MESSAGE: "records",
    RequestCode.PEEK_MESSAGE: "records",
    RequestCode.GET_BROKER_CONFIG: "lines of settings; docs/configuration.md says what becomes of each key",
    RequestCode.GET_BROKER_RUNTIME_INFO: "figures of one implementation: a program shows whatever is there",
}
"""Codes whose bodies are not compared, and why."""

BODY_PARTS_NOT_COMPARED: dict[int, dict[str, str]] = {
    RequestCode.GET_TOPIC_CONFIG: {
        ".attributes.message.type": "the recorded topic was made with it",
        ".mappingDetail": "a static topic; they are refused here",
    },
    RequestCode.QUERY_CONSUME_QUEUE: {".filterData": "the text of a null"},
    RequestCode.GET_CONSUMER_CONNECTION_LIST: {".subscriptionTable": HELD},
}
"""Parts of bodies that are not compared, and why. All others are, by member names and kinds of values."""

TABLES: dict[int, tuple[str, ...]] = {
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (".subscriptionGroupTable", ".forbiddenTable"),
    RequestCode.GET_CONSUME_STATS: (".offsetTable",),
    RequestCode.GET_TOPIC_STATS_INFO: (".offsetTable",),
    RequestCode.GET_ALL_PRODUCER_INFO: (".data",),
    RequestCode.GET_ALL_TOPIC_CONFIG: (".topicConfigTable", ".topicQueueMappingDetailMap"),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (".messageQueueTable", ".consumerTable", ".consumerTable.*"),
    RequestCode.QUERY_CORRECTION_OFFSET: (".correctionOffsets",),
    RequestCode.GET_ALL_CONSUMER_OFFSET: (".offsetTable", ".groupTopicMap", ".pullOffsetTable"),
    RequestCode.GET_ALL_DELAY_OFFSET: (".offsetTable",),
}
"""Objects whose member names are what the recorded broker held: the forms of their values are compared."""


def form(value: Any) -> Any:
    """A body without its values: members of objects by name, kinds of values; of lists and tables whatever forms their entries have."""
    if isinstance(value, dict):
        return {str(name): form(one) for name, one in value.items()}
    if isinstance(value, list):
        return [form(one) for one in value]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def compare_bodies(ours: bytes, theirs: bytes, code: int) -> None:
    if theirs[:1] == b"{":
        left_out, tables = BODY_PARTS_NOT_COMPARED.get(code, {}), TABLES.get(code, ())
        missing = [
            problem
            for problem in lacking(form(loads(ours)), form(loads(theirs)), "", tables)
            if not any(problem.startswith(part) for part in left_out)
        ]
        assert missing == [], f"body of {RequestCode(code).name}"


def lacking(ours: Any, theirs: Any, path: str, tables: Collection[str] = ()) -> Iterator[str]:
    """Where our form lacks what theirs has, or has what theirs lacks."""
    if type(ours) is not type(theirs):
        yield f"{path}: {ours} for {theirs}"
    elif path in tables:
        if ours and theirs:
            yield from lacking(next(iter(ours.values())), next(iter(theirs.values())), f"{path}.*", tables)
    elif isinstance(theirs, dict):
        for name in theirs.keys() | ours.keys():
            if name not in ours or name not in theirs:
                yield f"{path}.{name} {'missing' if name in theirs else 'added'}"
            else:
                yield from lacking(ours[name], theirs[name], f"{path}.{name}", tables)
    elif isinstance(theirs, list):
        if theirs and ours:
            yield from lacking(ours[0], theirs[0], f"{path}[]", tables)
    elif ours != theirs:
        yield f"{path}: {ours} for {theirs}"


PASSED_ON = frozenset({RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY})
"""Codes whose answer is a client's own: its bytes are passed on."""


def difference(exchange: Exchange) -> str | None:
    """The entry of `DIFFERENT` that this exchange falls under."""
    code, answer = exchange.request.code, exchange.answer.code
    if code == RequestCode.QUERY_CONSUMER_OFFSET and answer == ResponseCode.QUERY_NOT_FOUND:
        return "empty queue" if exchange.request.boolean("setZeroIfNotFound", True) else None
    if code == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET and answer == ResponseCode.CONSUMER_NOT_ONLINE:
        return "reset without the consumer"
    if code == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET and answer == ResponseCode.SYSTEM_ERROR:
        return "reset of an unknown group"
    if "recallHandle" in exchange.answer.fields:
        return "timer"
    return None


def replay(make_rig: Any, exchange: Exchange) -> Command:
    """Our answer to the recorded request, after preparing for the recorded answer."""
    code = exchange.answer.code
    rig = make_rig(
        auto_create_topic_enable=code != ResponseCode.TOPIC_NOT_EXIST,
        auto_create_subscription_group=code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    )
    prepare_common(rig, exchange)
    prepare = PREPARE.get(exchange.request.code)
    if prepare is not None and code != ResponseCode.INVALID_PARAMETER:
        prepare(rig, exchange)
    peer = rig.peer()
    answer = rig.broker.handle(exchange.request, peer)
    rig.broker.end_turn()
    if answer is None and not peer.sent:
        rig.advance(exchange.request.integer("suspendTimeoutMillis", exchange.request.integer("pollTime")))
    return answer or next(sent for sent in peer.sent if sent.is_response)


SERVED = frozenset(
    {
        10, 11, 12, 14, 15, 17, 18, 21, 25, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 38, 41, 42, 43, 45, 46, 50, 51, 52, 53, 54, 200, 201,
        202,
        203, 204, 207, 208, 215, 222, 223, 225, 300, 303, 305, 306, 307, 308, 309, 310, 314, 315, 316, 317, 320, 321, 324, 325, 328,
        329, 343, 345, 351, 352, 353, 361, 400, 401, 402, 907, 3001, 3002, 3003, 3004, 3005, 3006, 3007, 3008, 3009, 3010,
        200050, 200051, 200052, 200053, 200054, 200055, 200151,
    }
)  # fmt: skip
"""The codes this broker answers; compared with its own table below."""

REPLAYED = [exchange for exchange in exchanges() if exchange.request.code in SERVED]
REFUSED = [exchange for exchange in exchanges() if exchange.request.code not in SERVED]


def test_the_list_of_served_codes_is_that_of_the_broker(rig):
    served = {
        code for code in rig.broker._handlers if not OWN_CODES_FROM <= code < RequestCode.POP_MESSAGE
    }  # our own compare with nothing of RocketMQ's
    assert served == SERVED


@pytest.mark.parametrize("exchange", REPLAYED, ids=[exchange.label for exchange in REPLAYED])
def test_answer_is_that_of_the_java_broker(make_rig, exchange):
    ours, theirs = replay(make_rig, exchange), exchange.answer
    assert ours.opaque == exchange.request.opaque
    if difference(exchange) is not None:
        assert ours.code != theirs.code or ours.fields.keys() != theirs.fields.keys(), (
            "this difference no longer exists"
        )
        return
    assert ours.code == theirs.code, ours.remark
    assert ours.fields.keys() == theirs.fields.keys()
    assert bool(ours.body) == bool(theirs.body)
    if exchange.request.code in PASSED_ON:
        assert bytes(ours.body) == bytes(theirs.body)
    left_out = VALUES_NOT_COMPARED.get(exchange.request.code, {})
    for name, value in theirs.fields.items():
        assert name in left_out or ours.fields[name] == value, name
    if exchange.request.code not in BODIES_NOT_COMPARED:
        compare_bodies(bytes(ours.body), bytes(theirs.body), exchange.request.code)


@pytest.mark.parametrize("exchange", REFUSED, ids=[exchange.label for exchange in REFUSED])
def test_what_is_not_served_is_answered_not_supported(make_rig, exchange):
    rig = make_rig()
    answer = rig.broker.handle(exchange.request, rig.peer())
    assert answer is not None
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_what_no_server_of_theirs_answers_is_known_to_be_unused():
    refused = {one.request.code for one in exchanges() if one.answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
    named = {code for code in refused if code in set(RequestCode)}
    assert named
    assert not any(REQUESTS[RequestCode(code)].served_by or REQUESTS[RequestCode(code)].refused for code in named)


def test_coverage_file_is_up_to_date(check_coverage):
    """Agreed exchanges per code, as counted by the tests above (which fail where one does not agree)."""
    check_coverage(SERVED, Counter(one.request.code for one in REPLAYED if difference(one) is None))


def test_codes_without_a_recorded_exchange_are_known():
    """Nothing of these was recorded with its answer; other tests cover them, the coverage does not count them."""
    recorded = {exchange.request.code for exchange in REPLAYED if difference(exchange) is None}
    assert sorted(SERVED - recorded) == [
        50,
        51,
        52,
        53,
        54,
    ]  # brokers of 5.3 do not serve the requests about accounts of 4.x


@pytest.mark.parametrize(
    "exchange",
    [
        exchange
        for exchange in REPLAYED
        if exchange.request.code == RequestCode.SEND_MESSAGE_V2
        and exchange.answer.code == ResponseCode.SUCCESS
        and difference(exchange) is None
    ],
    ids=lambda exchange: exchange.label,
)
def test_properties_of_recorded_sends_come_out_of_the_log_as_they_went_in(make_rig, exchange):
    rig = make_rig()
    rig.broker.handle(exchange.request, rig.peer())
    rig.broker.end_turn()
    stored = rig.store.record_at(0)
    assert stored is not None
    assert exchange.request.fields["i"].encode() in bytes(stored)
