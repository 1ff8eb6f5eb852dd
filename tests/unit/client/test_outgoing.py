"""Send requests and receipts."""

from __future__ import annotations

import pytest

from orbitmq.client._async.sending.receipt import receipts
from orbitmq.client.message import Message, SendStatus
from orbitmq.client.options import Codec
from orbitmq.client.sending.outgoing import compressed, prepare, prepare_batch, request_fields
from orbitmq.clock import ManualClock
from orbitmq.errors import ClientError, MessageIllegalError
from orbitmq.protocol.batches import decode_batch
from orbitmq.protocol.compression import decompress
from orbitmq.protocol.ids import UniqueIds
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.sysflag import compression_of

IDS = UniqueIds(ManualClock(), "10.0.0.1")
QUEUE = MessageQueue("T", "b-a", 2)


def test_the_short_send_header() -> None:
    outgoing = prepare("T", Message(b"x", flag=7), IDS, 100, ordering_key="k")
    fields = request_fields(outgoing, QUEUE, "pg", 4, 1_700_000_000_000)
    properties = decode_properties(fields.pop("i"))
    assert properties == {"WAIT": "true", "UNIQ_KEY": outgoing.unique_ids[0], "__SHARDINGKEY": "k"}
    assert fields == {
        "a": "pg",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "2",
        "f": "0",
        "g": "1700000000000",
        "h": "7",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "b-a",
    }


@pytest.mark.parametrize("codec", [Codec.ZLIB, Codec.LZ4, Codec.ZSTD])
def test_bodies_shrink_or_stay(codec: Codec) -> None:
    outgoing = prepare("T", Message(b"a" * 5000), IDS, 10_000, None)
    packed = compressed(outgoing, codec)
    compression = compression_of(packed.sys_flag)
    assert compression is not None
    assert len(packed.body) < 1000
    assert decompress(packed.body, compression) == outgoing.body
    tiny = prepare("T", Message(b"ab"), IDS, 10_000, None)
    assert compressed(tiny, codec) is tiny


def test_a_batch_is_one_body_with_an_id_for_each_message() -> None:
    outgoing = prepare_batch("T", [Message(b"a", tag="x", flag=3), Message(b"b", key="k")], IDS, 10_000)
    items = decode_batch(outgoing.body)
    assert [(item.body, item.flag) for item in items] == [(b"a", 3), (b"b", 0)]
    assert [decode_properties(item.properties)["UNIQ_KEY"] for item in items] == list(outgoing.unique_ids)
    assert len(set(outgoing.unique_ids)) == 2
    assert request_fields(outgoing, QUEUE, "pg", 4, 0)["m"] == "true"


@pytest.mark.parametrize(
    ("topic", "messages", "says"),
    [
        ("T", [], "empty"),
        ("T", [Message(b"a", delay_level=1)], "message 0"),
        ("T", [Message(b"a"), Message(b"")], "message 1"),
        ("T", [Message(b"a"), Message(b"b", wait_stored=False)], "wait_stored"),
        ("%RETRY%g", [Message(b"a")], "retry"),
        ("T", [Message(b"a"), b"b"], r"message 1 of the batch is bytes \(give orbitmq.Message"),
        ("T", [Message(b"a" * 90), Message(b"b" * 90)], "split"),
    ],
)
def test_what_cannot_be_a_batch_is_refused(topic: str, messages: list[Message], says: str) -> None:
    with pytest.raises(MessageIllegalError, match=says):
        prepare_batch(topic, messages, IDS, 150)


def test_receipts_of_a_batch_count_offsets_up() -> None:
    outgoing = prepare_batch("T", [Message(b"a"), Message(b"b")], IDS, 10_000)
    answer = Command(0, fields={"msgId": "M1,M2", "queueId": "5", "queueOffset": "10", "MSG_REGION": "R"})
    first, second = receipts(outgoing, QUEUE, answer, 2)
    assert (first.offset_message_id, second.offset_message_id) == ("M1", "M2")
    assert (first.queue_offset, second.queue_offset) == (10, 11)
    assert first.queue == MessageQueue("T", "b-a", 5)
    assert (first.message_id, second.message_id) == outgoing.unique_ids
    assert (first.region, first.attempts_count) == ("R", 2)


def test_an_inner_batch_has_one_place() -> None:
    outgoing = prepare_batch("T", [Message(b"a"), Message(b"b")], IDS, 10_000)
    answer = Command(10, fields={"msgId": "M", "queueId": "2", "queueOffset": "7", "batchUniqId": "U"})
    first, second = receipts(outgoing, QUEUE, answer, 1)
    assert first.send_status is SendStatus.FLUSH_DISK_TIMEOUT
    assert (first.queue_offset, second.queue_offset, second.offset_message_id) == (7, 7, "M")


def test_an_answer_without_a_place_is_an_error() -> None:
    outgoing = prepare("T", Message(b"x"), IDS, 100, None)
    with pytest.raises(ClientError, match="did not say where"):
        receipts(outgoing, QUEUE, Command(0, fields={"msgId": "M"}), 1)


def test_a_priority_is_a_property() -> None:
    outgoing = prepare("T", Message(b"x", priority=0), IDS, 100)
    assert decode_properties(outgoing.properties)["_SYS_MSG_PRIORITY_"] == "0"


@pytest.mark.parametrize(
    ("more", "ordering_key", "reserved"),
    [
        ({"priority": -1}, None, None),
        ({"priority": 2**31}, None, None),
        ({"priority": True}, None, None),
        ({"priority": 1, "delay_level": 1}, None, None),
        ({"priority": 1, "after": 5}, None, None),
        ({"priority": 1}, "key", None),
        ({"priority": 1}, None, {"TRAN_MSG": "true"}),
    ],
)
def test_a_priority_that_the_broker_would_drop_is_refused(more, ordering_key, reserved) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(MessageIllegalError, match="priority"):
        prepare("T", Message(b"x", **more), IDS, 100, ordering_key, reserved)
    with pytest.raises(MessageIllegalError, match="priority"):
        prepare_batch("T", [Message(b"x", **{"priority": 1} | more)], IDS, 1000)
