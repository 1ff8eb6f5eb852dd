"""Sends and pulls that ask for what cannot be: the protocol's code, a remark that says what is wrong, nothing stored."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from server_process import RawClient, ServedProcess, pull_fields, send_fields

from orbitmq.limits.wire import BATCH_MESSAGES_MAX, BODY_BYTES_MAX, PROPERTIES_BYTES_MAX, PROPERTIES_ROOM_BYTES
from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import encode, request

SEND, SEND_V1, SEND_BATCH, PULL = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.PULL_MESSAGE,
)
ILLEGAL, PARAMETER, DENIED, ERROR, NO_TOPIC, NO_GROUP = (
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.INVALID_PARAMETER,
    ResponseCode.NO_PERMISSION,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
)
UNPARSED = ResponseCode.SUBSCRIPTION_PARSE_FAILED


class Case(NamedTuple):
    """A send that must be refused: its header and body, the code, and words of the remark."""

    fields: dict[str, str]
    body: bytes
    code: ResponseCode
    words: str
    request: RequestCode = SEND


def message(properties: dict[str, str] | str | None = None, topic: str = "orders", **more: object) -> dict[str, str]:
    return send_fields(topic, properties, **more)


def batch(*items: BatchItem) -> bytes:
    return encode_batch(items)


ITEM = BatchItem(0, b"one", b"")
TOO_LONG = "x" * 32_768

CASES = {
    # names
    "topic with a blank": Case(message(topic="two words"), b"x", PARAMETER, "two words"),
    "topic empty": Case(message(topic=""), b"x", PARAMETER, "topic"),
    "topic missing": Case(message() | {"b": ""}, b"x", PARAMETER, "topic"),
    "topic with a slash": Case(message(topic="../../etc/passwd"), b"x", PARAMETER, "/"),
    "topic with NUL": Case(message(topic="or\0ders"), b"x", PARAMETER, "topic"),
    "topic with a new line": Case(message(topic="or\nders"), b"x", PARAMETER, "topic"),
    "topic of dots": Case(message(topic=".."), b"x", PARAMETER, "."),
    "topic not ASCII": Case(message(topic="aufträge"), b"x", PARAMETER, "aufträge"),
    "topic of 128": Case(message(topic="t" * 128), b"x", PARAMETER, "127"),
    "topic of 400,000": Case(message(topic="t" * 400_000), b"x", PARAMETER, "127"),
    "topic unknown, no template": Case(message(topic="unheard", c="no-such-template"), b"x", NO_TOPIC, "unheard"),
    "topic unknown, template empty": Case(message(topic="unheard", c=""), b"x", NO_TOPIC, "unheard"),
    # topics of the system
    "schedule topic": Case(message(topic="SCHEDULE_TOPIC_XXXX"), b"x", DENIED, "SCHEDULE_TOPIC_XXXX"),
    "half topic": Case(message(topic="RMQ_SYS_TRANS_HALF_TOPIC"), b"x", DENIED, "system topic"),
    "op topic": Case(message(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC"), b"x", DENIED, "system topic"),
    "trans check topic": Case(message(topic="TRANS_CHECK_MAX_TIME_TOPIC"), b"x", DENIED, "system topic"),
    "self test topic": Case(message(topic="SELF_TEST_TOPIC"), b"x", DENIED, "system topic"),
    "offset moved topic": Case(message(topic="OFFSET_MOVED_EVENT"), b"x", DENIED, "system topic"),
    "timer topic": Case(message(topic="rmq_sys_wheel_timer"), b"x", DENIED, "system topic"),
    # queues and numbers
    "queue beyond": Case(message(e=1), b"x", PARAMETER, "queue 1"),
    "queue huge": Case(message(e=2**31 - 1), b"x", PARAMETER, "queue"),
    # bodies
    "no body": Case(message(), b"", ERROR, "body"),
    "body over the limit": Case(message(), b"x" * (BODY_BYTES_MAX + 1), ILLEGAL, str(BODY_BYTES_MAX)),
    "body of 15 MiB": Case(message(), b"x" * (15 << 20), ILLEGAL, str(15 << 20)),
    # properties
    "properties over the limit": Case(message({"long": TOO_LONG}), b"x", ILLEGAL, str(PROPERTIES_BYTES_MAX)),
    "properties over the limit with the broker's own": Case(
        message({"long": "x" * (PROPERTIES_BYTES_MAX - 30)}), b"x", ILLEGAL, "those of the broker"
    ),
    "properties of 400 KB": Case(message({"long": "x" * 400_000}), b"x", ILLEGAL, "bytes"),
    "many properties": Case(message({f"p{n}": "v" for n in range(20_000)}), b"x", ILLEGAL, "bytes"),
    "delay no number": Case(message({"DELAY": "soon"}), b"x", ERROR, "'soon'"),
    "delay beyond int32": Case(message({"DELAY": "99999999999999"}), b"x", ERROR, "DELAY"),
    "delay with a blank": Case(message({"DELAY": "1 2"}), b"x", ERROR, "DELAY"),
    # times
    "timer in words": Case(message({"TIMER_DELAY_SEC": "soon"}), b"x", ILLEGAL, "TIMER_DELAY_SEC"),
    "timer beyond int64": Case(message({"TIMER_DELAY_MS": "9" * 30}), b"x", ILLEGAL, "TIMER_DELAY_MS"),
    "timer after the year 9999": Case(message({"TIMER_DELIVER_MS": "999999999999999"}), b"x", ILLEGAL, "9999"),
    "timer with digits of another script": Case(message({"TIMER_DELAY_MS": "\u0663"}), b"x", ILLEGAL, "TIMER_DELAY_MS"),
    "cancellation in the past": Case(
        message({"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "orders+A"}), b"x", ILLEGAL, "TIMER_DELIVER_MS"
    ),
    "half message of nobody": Case(message({"TRAN_MSG": "true"}), b"x", ILLEGAL, "PGROUP"),
    # what is not built, or no sender's to say
    "half message by flag": Case(message(f=4), b"x", DENIED, "transaction"),
    "commit by flag": Case(message(f=8), b"x", DENIED, "transaction"),
    "rollback by flag": Case(message(f=12), b"x", DENIED, "transaction"),
    "inner batch": Case(message({"INNER_NUM": "3"}), b"x", ILLEGAL, "inner batch"),
    "inner batch by flag": Case(message(f=0x40), b"x", ILLEGAL, "inner batch"),
    "unwrap by flag": Case(message(f=0x80), b"x", ILLEGAL, "inner batch"),
    "all flags": Case(message(f=-1), b"x", DENIED, "transaction"),
    # batches
    "batch empty": Case(message(m="true"), b"", ILLEGAL, "no message", SEND_BATCH),
    "batch of noise": Case(message(m="true"), b"noise" * 9, ILLEGAL, "batch", SEND_BATCH),
    "batch cut": Case(message(m="true"), batch(ITEM, ITEM)[:-3], ILLEGAL, "batch", SEND_BATCH),
    "batch item size 0": Case(message(m="true"), bytes(64), ILLEGAL, "batch", SEND_BATCH),
    "batch item size negative": Case(message(m="true"), struct.pack(">i", -5) * 9, ILLEGAL, "batch", SEND_BATCH),
    "batch item body beyond": Case(
        message(m="true"), struct.pack(">iiiii", 30, 0, 0, 0, 2**31 - 1) + bytes(10), ILLEGAL, "batch", SEND_BATCH
    ),
    "batch of 161,000 empty items": Case(
        message(m="true"), batch(BatchItem(0, b"", b"")) * 161_000, ILLEGAL, str(BATCH_MESSAGES_MAX), SEND_BATCH
    ),
    "batch over the limit": Case(
        message(m="true"), batch(BatchItem(0, b"x" * 100_000, b"")) * 42, ILLEGAL, str(BODY_BYTES_MAX), SEND_BATCH
    ),
    "batch with a delay": Case(
        message(m="true"), batch(ITEM, BatchItem(0, b"x", b"DELAY\x013\x02")), ILLEGAL, "DELAY", SEND_BATCH
    ),
    "batch delayed as a whole": Case(message({"DELAY": "3"}, m="true"), batch(ITEM), ILLEGAL, "DELAY", SEND_BATCH),
    "batch with two times": Case(
        message(m="true"),
        batch(BatchItem(0, b"x", b"TIMER_DELAY_MS\x0160000\x02"), BatchItem(0, b"x", b"TIMER_DELAY_MS\x0170000\x02")),
        ILLEGAL,
        "time",
        SEND_BATCH,
    ),
    "batch with a half message": Case(
        message(m="true"), batch(BatchItem(0, b"x", b"TRAN_MSG\x01true\x02")), ILLEGAL, "TRAN_MSG", SEND_BATCH
    ),
    "batch in a batch": Case(
        message(m="true"), batch(BatchItem(0, b"x", b"INNER_NUM\x012\x02")), ILLEGAL, "INNER_NUM", SEND_BATCH
    ),
    "batch with long properties": Case(
        message(m="true"), batch(BatchItem(0, b"x", b"p\x01" + b"v" * 32_700 + b"\x02")), ILLEGAL, "propert", SEND_BATCH
    ),
    "batch to a retry topic": Case(
        message(topic="%RETRY%readers", m="true"), batch(ITEM), ILLEGAL, "%RETRY%readers", SEND_BATCH
    ),
    "batch to a system topic": Case(
        message(topic="SCHEDULE_TOPIC_XXXX", m="true"), batch(ITEM), DENIED, "SCHEDULE_TOPIC_XXXX", SEND_BATCH
    ),
}


@pytest.fixture(scope="module")
def prepared(server: ServedProcess) -> ServedProcess:
    server.create_topic("orders")
    with RawClient(server.port) as client:  # so that group and retry topic are there
        client.call(PULL, pull_fields(consumerGroup="readers"))
        client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("%RETRY%readers"))
    return server


def topic_fields(name: str, **more: object) -> dict[str, str]:
    fields = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    return fields | {key: str(value) for key, value in more.items()}


@pytest.fixture
def client(prepared: ServedProcess) -> Iterator[RawClient]:
    with RawClient(prepared.port) as client:
        yield client


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_bad_send_is_refused_and_nothing_is_stored(prepared: ServedProcess, client: RawClient, case: Case) -> None:
    before = prepared.runtime()["commitLogMaxOffset"]
    answer = client.call(case.request, case.fields, case.body)
    assert (answer.code, answer.remark) == (case.code, answer.remark)
    assert case.words in (answer.remark or "")
    assert len(answer.remark or "") < 1_000, "a remark does not repeat a megabyte"
    assert prepared.runtime()["commitLogMaxOffset"] == before
    assert answer.fields["MSG_REGION"] == "DefaultRegion"


@pytest.mark.parametrize("name", CASES.keys())
def test_a_bad_oneway_send_is_dropped_in_silence(prepared: ServedProcess, client: RawClient, name: str) -> None:
    case = CASES[name]
    before = prepared.runtime()["commitLogMaxOffset"]
    client.write(encode(request(case.request, case.fields, case.body, oneway=True, opaque=77)))
    assert client.call(RequestCode.GET_ALL_TOPIC_CONFIG).code == 0
    assert prepared.runtime()["commitLogMaxOffset"] == before


def test_no_topic_came_into_being(prepared: ServedProcess, client: RawClient) -> None:
    for case in CASES.values():
        client.call(case.request, case.fields, case.body)
    names = bytes(client.call(RequestCode.GET_ALL_TOPIC_CONFIG).body).decode()
    for name in ("two words", "passwd", "unheard", "ttttt"):
        assert name not in names


# --- accepted although strange ----------------------------------------------------------------------------------------

ODD = {
    "queue -1 is any": message(e=-1),
    "queue most negative": message(e=-(2**31)),
    "queue in words is 0": message(e="first"),
    "queue beyond int32 is 0": message(e=2**63),
    "born timestamp negative": message(g=-1),
    "born timestamp most negative": message(g=-(2**63)),
    "born timestamp largest": message(g=2**63 - 1),
    "born timestamp beyond int64": message(g=2**64),
    "born timestamp in words": message(g="now"),
    "flag beyond int32": message(h=2**40),
    "flag largest": message(h=2**31 - 1),
    "flag negative": message(h=-1),
    "sysFlag beyond int32": message(f=2**40),
    "sysFlag with the host bits": message(f=0x30),
    "reconsumed negative": message(j=-1),
    "reconsumed largest": message(j=2**31 - 1),
    "reconsumed beyond int32": message(j=2**31),
    "limit beyond int32": message(l=2**40),
    "queues of the template huge": message(d=2**31 - 1),
    "missing everything but topic": {"b": "orders"},
    "digits of other scripts": message(e="٠", h="٣"),
    "digits with underscores": message(e="0_0", h="1_0"),
    "digits with blanks": message(e=" 0 ", h=" 7"),
    "properties without an end": message("a\x01b"),
    "properties of separators": message("\x01\x02\x01\x02\x02\x02"),
    "properties with NUL": message({"a": "\0", "UNIQ_KEY": "u\0"}),
    "properties without a value": message("lonely\x02"),
    "properties twice": message("a\x011\x02a\x012\x02"),
    "properties not BMP": message({"KEYS": "\U0001f680 \U0001f680"}),
    "very long keys": message({"KEYS": " ".join(f"key{n}" for n in range(3_000))}),
    "delay 0": message({"DELAY": "0"}),
    "delay negative": message({"DELAY": "-3"}),
    "delay above the highest": message({"DELAY": "2147483647"}),
    "our own property forged": message({"ORBITMQ_DUE_MS": "1", "UNIQ_KEY": "U" * 32}),
    "real topic forged": message({"REAL_TOPIC": "%DLQ%x", "REAL_QID": "99"}),
    "unique key empty": message({"UNIQ_KEY": ""}),
    "unique key long": message({"UNIQ_KEY": "u" * 30_000}),
    "timer that was delivered": message({"TIMER_OUT_MS": "1"}),
}  # fmt: skip


@pytest.mark.parametrize("code", [SEND, SEND_V1])
@pytest.mark.parametrize("name", ODD.keys())
def test_odd_sends_are_stored_whole(prepared: ServedProcess, client: RawClient, name: str, code: RequestCode) -> None:
    """What RocketMQ takes is taken; what is stored is a sound record that a reader decodes, in a queue of its topic."""
    long_names = {
        "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId",
        "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode",
        "l": "maxReconsumeTimes", "m": "batch",
    }  # fmt: skip
    fields = ODD[name]
    if code == SEND_V1:
        fields = {long_names[key]: value for key, value in fields.items()}
    client.write(encode(request(code, fields, b"body", opaque=client.next_opaque())))
    answer = client.read()
    if "beyond" in name and answer.code:
        # A number that fits no record: RocketMQ's decoder gives 0 or fails, depending on the form of the header.
        assert answer.code in (ILLEGAL, PARAMETER)
        assert answer.remark
        return
    assert answer.code == 0, answer.remark
    assert answer.fields["queueId"] == "0"
    assert answer.fields["transactionId"]
    where = int(answer.fields["msgId"][-16:], 16)
    found = client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(where)})
    assert found.code == 0, found.remark
    record = decode_record(bytes(found.body))
    assert record.body == b"body"
    assert record.topic in ("orders", "SCHEDULE_TOPIC_XXXX")
    assert record.physical_offset == where


def test_a_chain_of_odd_messages_can_be_pulled(prepared: ServedProcess, client: RawClient) -> None:
    stored = int(client.call(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}).fields["offset"])
    assert stored > 40
    at = 0
    while at < stored:
        answer = client.call(PULL, pull_fields(offset=at))
        assert answer.code == 0, answer.remark
        at = int(answer.fields["nextBeginOffset"])


# --- pulls --------------------------------------------------------------------------------------------------------------

PULLS = {
    "group with a blank": (pull_fields(consumerGroup="two words"), NO_GROUP, "two words"),
    "group empty": (pull_fields(consumerGroup=""), NO_GROUP, "''"),
    "group of 256": (pull_fields(consumerGroup="g" * 256), NO_GROUP, "group"),
    "group of 400,000": (pull_fields(consumerGroup="g" * 400_000), NO_GROUP, "group"),
    "topic unknown": (pull_fields("unheard"), NO_TOPIC, "unheard"),
    "queue -1": (pull_fields(queue_id=-1), PARAMETER, "queue -1"),
    "queue beyond": (pull_fields(queue_id=1), PARAMETER, "queue 1"),
    "queue huge": (pull_fields(queue_id=2**31 - 1), PARAMETER, "queue"),
    "filter that is no expression": (
        pull_fields(expressionType="SQL92", subscription="a >"),
        UNPARSED,
        "at character 3",
    ),
    "filter nested 10,000 deep": (
        pull_fields(expressionType="SQL92", subscription="(" * 10_000),
        UNPARSED,
        "at character 100",
    ),
    "filter of 64,000 characters": (
        pull_fields(expressionType="SQL92", subscription="a" * 64_000),
        UNPARSED,
        "16384 at most",
    ),
    "filter of an unknown kind": (pull_fields(expressionType="REGEX"), UNPARSED, "REGEX"),
    "filter without brackets": (pull_fields(subscription="||"), UNPARSED, ""),
    "without subscription or heartbeat": (pull_fields(sysFlag=0), ResponseCode.SUBSCRIPTION_NOT_EXIST, "readers"),
    "offset -1": (pull_fields(offset=-1), ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL"),
    "offset most negative": (pull_fields(offset=-(2**63)), ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL"),
    "offset far": (pull_fields(offset=10**6), ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY"),
    "offset largest": (pull_fields(offset=2**63 - 1), ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY"),
}


@pytest.mark.parametrize(("fields", "code", "words"), PULLS.values(), ids=PULLS.keys())
def test_bad_pulls(
    prepared: ServedProcess, client: RawClient, fields: dict[str, str], code: ResponseCode, words: str
) -> None:
    client.call(SEND, message(), b"something")
    answer = client.call(PULL, fields)
    assert (answer.code, words in (answer.remark or "")) == (code, True), answer.remark
    assert len(answer.remark or "") < 1_000
    if code == ResponseCode.PULL_OFFSET_MOVED:
        largest = client.call(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}).fields["offset"]
        assert answer.fields["nextBeginOffset"] in ("0", largest)
        assert answer.fields["minOffset"] == "0"
        assert answer.fields["maxOffset"] == largest


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 1, 33, 100_000, 2**31 - 1, 2**63, "many"])
@pytest.mark.parametrize("size", [-(2**31), 0, 1, 2**31 - 1, 2**40])
def test_a_pull_gives_at_least_one_and_never_more_than_the_bounds(
    prepared: ServedProcess, client: RawClient, count: object, size: object
) -> None:
    client.call(SEND, message(), b"something")
    answer = client.call(PULL, pull_fields(maxMsgNums=count, maxMsgBytes=size))
    assert answer.code == 0
    assert 0 < len(answer.body) < 2 << 20
    assert 1 <= int(answer.fields["nextBeginOffset"]) <= 1_024


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "-1"}),
        (RequestCode.GET_MAX_OFFSET, {}),
        (RequestCode.GET_MIN_OFFSET, {"topic": "\0", "queueId": "9999999999999"}),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "orders", "queueId": "0", "timestamp": str(2**63)}),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "orders", "queueId": "0", "timestamp": str(-(2**63))}),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "unheard", "queueId": "-7"}),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "-1"}),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "3"}),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(2**63 - 1)}),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "99999999999999999999999999"}),
        (RequestCode.VIEW_MESSAGE_BY_ID, {}),
        (RequestCode.QUERY_MESSAGE, {"topic": "orders", "key": "x", "maxNum": str(2**31), "beginTimestamp": "-9", "endTimestamp": "x"}),
        (RequestCode.QUERY_MESSAGE, {}),
        (RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": "-1", "group": "readers", "delayLevel": "0"}),
        (RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": str(2**63 - 1), "group": "readers", "delayLevel": str(2**40)}),
        (RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": "1", "group": "gr oup", "delayLevel": "0"}),
        (RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "\0", "topic": "orders", "queueId": "-1"}),
        (RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "readers", "topic": "\0/..", "queueId": "-5", "commitOffset": str(2**70)}),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("two words")),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("../up")),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("SCHEDULE_TOPIC_XXXX")),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("many", writeQueueNums=2**31 - 1, readQueueNums=2**31 - 1)),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("negative", writeQueueNums=-1)),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("odd", perm=-1)),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("odd", perm="rw", attributes="+a=b,+,=")),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "../../.."}),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "SCHEDULE_TOPIC_XXXX"}),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {}),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {}),
        (RequestCode.LOCK_BATCH_MQ, {}),
        (RequestCode.HEART_BEAT, {}),
        (RequestCode.UNREGISTER_CLIENT, {}),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"topic": "orders", "group": "others", "timestamp": "x", "isForce": "x"}),
        (RequestCode.CLONE_GROUP_OFFSET, {}),
        (RequestCode.UPDATE_BROKER_CONFIG, {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("body", [b"", b"\xff\xfe\0noise", b"{}", b"[]", b"null", b"[" * 200_000])
def test_other_requests_with_nonsense_are_answered(
    prepared: ServedProcess, client: RawClient, code: RequestCode, fields: dict[str, str], body: bytes
) -> None:
    """Any answer of the protocol is fine, as long as there is one, no traceback is logged and nobody else suffers."""
    logged = len(prepared.log())
    answer = client.call(code, fields, body)
    assert answer.is_response
    assert len(answer.remark or "") < 1_000
    assert client.call(PULL, pull_fields()).code == 0
    assert "Traceback" not in prepared.log()[logged:]
    assert (prepared.data / "commitlog").is_dir()


def test_nothing_of_it_is_wrong_on_disk(serve: Callable[..., ServedProcess]) -> None:
    """All odd sends once more into a fresh store; after an orderly stop it is sound, and starts again."""
    server = serve()
    server.create_topic("orders")
    with server.client() as client:
        stored = 0
        for name, fields in ODD.items():
            if "beyond" in name:
                continue
            if client.call(SEND, fields, b"body").code == 0:
                stored += 1
    assert stored == sum("beyond" not in name for name in ODD)
    server.stop()
    check = subprocess_check(server)
    assert check == 0
    again = serve()
    with again.client() as client:
        assert client.call(PULL, pull_fields()).code == 0
    again.stop()


def subprocess_check(server: ServedProcess) -> int:
    import subprocess
    import sys

    from server_process import clean_environment

    done = subprocess.run(
        [sys.executable, "-m", "orbitmq.cli.main", "store", "check", str(server.data)],
        capture_output=True,
        env=clean_environment(),
        timeout=240,
        check=False,
    )
    return done.returncode


def test_properties_are_as_long_as_allowed(prepared: ServedProcess, client: RawClient) -> None:
    """Exactly the largest properties, with what the broker adds and may have to add later, are taken."""
    probe = client.call(SEND, message({"UNIQ_KEY": "u" * 32}), b"x")
    where = int(probe.fields["msgId"][-16:], 16)
    record = decode_record(bytes(client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(where)}).body))
    added = len(record.properties) - len(encode_properties({"UNIQ_KEY": "u" * 32}))
    room = (
        PROPERTIES_BYTES_MAX - PROPERTIES_ROOM_BYTES - added - len(encode_properties({"UNIQ_KEY": "u" * 32, "p": ""}))
    )
    for extra, code in ((0, 0), (1, ILLEGAL)):
        answer = client.call(SEND, message({"UNIQ_KEY": "u" * 32, "p": "x" * (room + extra)}), b"x")
        assert answer.code == code, answer.remark


@pytest.mark.parametrize(
    "name", ["../commitlog", "../config", "..", ".", "/", "a/../../commitlog", "orders/0", "or\0ders"]
)
def test_a_topic_name_is_never_a_path(prepared: ServedProcess, client: RawClient, name: str) -> None:
    before = sorted(path.relative_to(prepared.data) for path in prepared.data.rglob("*") if path.is_dir())
    answer = client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name})
    assert answer.code == PARAMETER
    assert answer.remark
    assert sorted(path.relative_to(prepared.data) for path in prepared.data.rglob("*") if path.is_dir()) == before
    assert client.call(SEND, message(), b"still here").code == 0


@pytest.mark.parametrize(
    "fields", [{}, {"topic": "\0", "brokerName": "", "brokerAddr": "x", "clusterName": "\n", "brokerId": str(2**70)}]
)
@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe\0noise", b"{}", b"null", b"[" * 200_000, b'{"topicConfigSerializeWrapper":7}']
)
@pytest.mark.parametrize(
    "code", [100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 901]
)
def test_nonsense_for_the_name_server_is_answered(
    prepared: ServedProcess, code: int, body: bytes, fields: dict[str, str]
) -> None:
    logged = len(prepared.log())
    with RawClient(prepared.name_port) as client:
        answer = client.call(code, fields, body)
        assert answer.is_response
        assert len(answer.remark or "") < 1_000
        assert client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}).code == 0
    assert "Traceback" not in prepared.log()[logged:]
    assert len(prepared.log()[logged:].splitlines()) <= 3
