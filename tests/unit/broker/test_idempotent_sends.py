"""Idempotent sends at the broker: what is a repeat, what it is answered, what is refused, and what is no repeat at all."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.little_store import SteppedWorker

from orbitmq.broker.idempotence.memory import KeyBounds
from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.settings import FlushDiskType, StoreSettings
from orbitmq.store.worker import Lanes

SYNC = StoreSettings(flush_disk_type=FlushDiskType.SYNC_FLUSH)


def once(scope: str = "jobs", epoch: Any = 1, key: str = "k", **more: str) -> dict[str, str]:
    return {"UNIQ_KEY": "U" * 32, "ORBITMQ_SCOPE": scope, "ORBITMQ_EPOCH": str(epoch), "ORBITMQ_ONCE_KEY": key, **more}


REPEAT = {"orbitmqRepeat": "stored"}
"""What the answer to a repeat has beside those of the first one."""


def told(answer: Command) -> dict[str, str]:
    """The answer to a repeat, without what says that it is one."""
    fields = dict(answer.fields or {})
    assert fields.pop("orbitmqRepeat") == "stored"
    fields.pop("orbitmqDeliverMs", None)
    return fields


def batch(*properties: dict[str, str], bodies: str = "abcdef") -> bytes:
    items = zip(bodies, properties, strict=False)
    return encode_batch([BatchItem(0, body.encode(), encode_properties(values)) for body, values in items])


@pytest.mark.parametrize("extra", [{}, {"TRACE_ON": "yes"}], ids=["short way", "general way"])
def test_a_repeat_is_answered_as_the_first_send_and_not_stored(rig, extra):
    rig.sent_ok("T")
    first = rig.sent_ok("T", b"one", once(**extra), queue_id=2)
    again = rig.sent_ok("T", b"one", once(**extra), queue_id=2)
    assert told(again) == first.fields
    assert len(rig.records("T", 2)) == 1
    assert rig.idempotence.repeat_count == 1


def test_a_repeat_to_another_queue_is_told_the_first_queue(rig):
    first = rig.sent_ok("T", b"one", once(), queue_id=2)
    again = rig.sent_ok("T", b"one", once(), queue_id=3)
    assert told(again) == first.fields
    assert rig.records("T", 3) == []


def test_without_a_key_of_its_own_the_unique_key_is_the_key(rig):
    values = {"UNIQ_KEY": "A" * 32, "ORBITMQ_SCOPE": "s", "ORBITMQ_EPOCH": "0"}
    rig.sent_ok("T", b"one", values)
    rig.sent_ok("T", b"one", values)
    rig.sent_ok("T", b"two", values | {"UNIQ_KEY": "B" * 32})
    assert [record.body for record in rig.records("T")] == [b"one", b"two"]


@pytest.mark.parametrize("other", [once(scope="other"), once(key="k2"), once(epoch=2)])
def test_another_scope_key_or_epoch_is_another_send(rig, other):
    rig.sent_ok("T", b"one", once())
    rig.sent_ok("T", b"two", other)
    assert len(rig.records("T")) == 2


def test_the_same_key_for_another_topic_is_another_send(rig):
    rig.sent_ok("T", b"one", once())
    rig.sent_ok("T2", b"one", once())
    assert len(rig.records("T2")) == 1


def test_the_epoch_before_the_current_one_is_still_remembered(rig):
    first = rig.sent_ok("T", b"one", once(epoch=4))
    rig.sent_ok("T", b"two", once(epoch=7))
    assert rig.sent_ok("T", b"one", once(epoch=4)).fields == first.fields | REPEAT
    rig.sent_ok("T", b"late", once(epoch=4, key="new"))
    assert len(rig.records("T")) == 3


@pytest.mark.parametrize("epoch", [3, 5])
def test_any_other_lower_epoch_is_stale(rig, epoch):
    for known in (3, 4, 6):
        rig.sent_ok("T", b"x", once(epoch=known))
    answer = rig.send("T", b"x", once(epoch=epoch, key="zombie"))
    assert answer.code == ResponseCode.STALE_EPOCH
    assert "'jobs'" in answer.remark
    assert f"epoch {epoch} " in answer.remark
    assert "current epoch is 6" in answer.remark
    assert len(rig.records("T")) == 3
    assert rig.idempotence.stale_count == 1


def test_a_copied_message_of_a_transient_scope_that_has_moved_on_is_stored(rig):
    """A program of another library copies the properties that it does not know; its messages are not to be refused for that."""
    for epoch in (1, 2, 3):
        rig.sent_ok("T", b"first life", once(scope="~producer", epoch=epoch, key=str(epoch)))
    copied = {"UNIQ_KEY": "C" * 32, "ORBITMQ_SCOPE": "~producer", "ORBITMQ_EPOCH": "1"}
    rig.sent_ok("Other", b"copied", copied)
    rig.sent_ok("Other", b"copied", copied)
    assert [record.body for record in rig.records("Other")] == [b"copied", b"copied"]
    assert rig.idempotence.stale_count == 0


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"ORBITMQ_SCOPE": "s"}, "ORBITMQ_EPOCH"),
        ({"ORBITMQ_EPOCH": "1"}, "ORBITMQ_SCOPE"),
        ({"ORBITMQ_ONCE_KEY": "k"}, "ORBITMQ_SCOPE"),
        (once(scope="", epoch=1), "empty"),
        (once(scope="x" * 256), "255"),
        (once(scope="\u00e4" * 128), "255"),
        (once(epoch="-1"), "decimal"),
        (once(epoch="0x1"), "decimal"),
        (once(epoch="1.0"), "decimal"),
        (once(epoch="\u0661"), "decimal"),
        (once(epoch=2**63), "decimal"),
        (once(epoch="9" * 5000), "decimal"),
        (once(key="k" * 1025), "1024"),
    ],
)
def test_what_is_malformed_is_refused_and_not_stored(rig, values, word):
    text = "".join(f"{name}\x01{value}\x02" for name, value in ({"UNIQ_KEY": "U" * 32} | values).items())
    answer = rig.send("T", b"x", text=text)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert word in answer.remark
    assert answer.fields == {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}
    assert rig.records("T") == []


def test_a_send_that_may_be_repeated_needs_a_key(rig):
    answer = rig.send("T", b"x", {"ORBITMQ_SCOPE": "s", "ORBITMQ_EPOCH": "1"})
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "needs a key" in answer.remark


def test_the_greatest_epoch_is_an_epoch(rig):
    rig.sent_ok("T", b"x", once(epoch=2**63 - 1))
    rig.reopen()
    rig.sent_ok("T", b"x", once(epoch=2**63 - 1))
    assert rig.store.max_offset("T", 0) == 1


def test_a_repeat_in_the_same_turn_is_one(rig):
    rig.sent_ok("T")
    peer = rig.peer()
    for _ in range(2):
        fields = {
            "producerGroup": "pg", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "1",
            "sysFlag": "0", "bornTimestamp": "0", "flag": "0", "properties": encode_properties(once()).decode(),
        }  # fmt: skip
        assert rig.give(request(RequestCode.SEND_MESSAGE, fields, b"x"), peer) is None
    rig.broker.end_turn()
    first, again = peer.take()
    assert told(again) == first.fields
    assert len(rig.records("T", 1)) == 1


def test_oneway_repeats_are_swallowed(rig):
    for _ in range(2):
        assert rig.send("T", b"x", once(), oneway=True) is None
    assert len(rig.records("T")) == 1


def test_a_send_whose_write_failed_was_no_send(rig, monkeypatch):
    rig.sent_ok("T")

    def full(log: CommitLog) -> None:
        log.discard()
        raise OSError(28, "no space")

    with monkeypatch.context() as broken:
        broken.setattr(CommitLog, "write", full)
        answer = rig.send("T", b"x", once())
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert rig.idempotence.memory.key_count == 0
    rig.store.allow("space")
    rig.sent_ok("T", b"x", once())
    assert [record.body for record in rig.records("T")][-1] == b"x"


@pytest.mark.parametrize("flush", FlushDiskType)
def test_a_send_whose_disk_failed_for_good_is_not_stored_when_it_is_repeated(make_rig, monkeypatch, flush):
    rig = make_rig(store=StoreSettings(flush_disk_type=flush))
    rig.send("T", b"x")
    rig.store.sync()

    def broken(log: CommitLog) -> None:
        raise OSError(5, "planned")

    monkeypatch.setattr(CommitLog, "write", broken)
    answer = rig.send("T", b"x", once())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "it may stay or not" in answer.remark
    assert rig.send("T", b"x", once()).code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_what_was_sent_is_known_after_an_orderly_stop_and_nothing_is_scanned(rig):
    first = rig.sent_ok("T", b"one", once())
    rig.reopen()
    assert rig.store.report.scanned_records == 0
    assert told(rig.sent_ok("T", b"one", once())) == first.fields
    assert rig.store.max_offset("T", 0) == 1


# --- what the first answer said -----------------------------------------------------------------------------------------


def test_a_repeat_from_a_restarted_program_gets_the_first_message_id(rig):
    first = rig.sent_ok("T", b"one", once())
    for reopened in (False, True):
        if reopened:
            rig.reopen()
        again = rig.sent_ok("T", b"one", once(UNIQ_KEY="V" * 32))
        assert told(again) == first.fields
        assert again.fields["transactionId"] == "U" * 32


def test_a_repeat_of_a_record_that_has_left_the_log_is_told_its_place(rig, monkeypatch):
    first = rig.sent_ok("T", b"one", once())
    monkeypatch.setattr(type(rig.store), "record_at", lambda store, position: None)
    again = rig.sent_ok("T", b"one", once(UNIQ_KEY="V" * 32))
    assert told(again) == first.fields | {"transactionId": "V" * 32}


# --- deleted topics -----------------------------------------------------------------------------------------------------


def delete(rig, topic="T"):
    assert rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("extra", [{}, {"DELAY": "2"}], ids=["plain", "delayed"])
def test_a_send_to_a_topic_that_was_deleted_and_made_again_is_a_first_one(rig, reopened, extra):
    rig.sent_ok("Other", b"other", once(**extra))
    first = rig.sent_ok("T", b"one", once(**extra))
    delete(rig)
    if reopened:
        rig.reopen()
    second = rig.sent_ok("T", b"one", once(**extra))
    assert "orbitmqRepeat" not in second.fields
    assert second.fields["msgId"] != first.fields["msgId"]
    assert told(rig.sent_ok("T", b"one", once(**extra))) == second.fields
    rig.reopen()
    assert told(rig.sent_ok("T", b"one", once(**extra))) == second.fields
    assert told(rig.sent_ok("Other", b"other", once(**extra)))["queueOffset"] == "0"
    assert rig.store.max_offset("T", 0) == (0 if extra else 1)


def test_a_batch_to_a_topic_that_was_deleted_and_made_again_is_stored(rig):
    body = batch(once(key="a"), once(key="b"))
    batched(rig, body)
    delete(rig)
    rig.sent_ok("T", b"a", once(key="a"))
    batched(rig, body)
    batched(rig, body)
    assert [record.body for record in rig.records("T")] == [b"a", b"b"]


def test_what_another_broker_deleted_is_seen_in_its_queue(rig):
    """RocketMQ removes the queues and leaves our journal as it is."""
    rig.sent_ok("T", b"one", once())
    rig.store.queues.forget_topic("T", rig.store.log.end)
    rig.sent_ok("T", b"one", once())
    rig.sent_ok("T", b"one", once())
    assert [record.body for record in rig.records("T")] == [b"one"]


# --- delayed messages -----------------------------------------------------------------------------------------------


def test_a_delayed_message_is_a_repeat_before_and_after_its_time(rig):
    values = once(DELAY="2")
    first = rig.sent_ok("T", b"later", values, queue_id=1)
    assert told(rig.sent_ok("T", b"later", values, queue_id=1)) == first.fields
    rig.reopen()
    again = rig.sent_ok("T", b"later", values, queue_id=1)
    assert told(again) == first.fields
    assert again.fields["queueId"] == "1"
    assert rig.store.max_offset("SCHEDULE_TOPIC_XXXX", 1) == 1


# --- copies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mark",
    [
        {"MSG_REGION": "DefaultRegion"},
        {"CLUSTER": "DefaultCluster"},
        {"RETRY_TOPIC": "T"},
        {"ORIGIN_MESSAGE_ID": "1"},
        {"DLQ_ORIGIN_TOPIC": "T"},
    ],
)
def test_a_copy_of_a_stored_message_is_stored_and_loses_the_names(rig, mark):
    rig.sent_ok("T", b"one", once())
    rig.sent_ok("T", b"copy", once(**mark))
    original, copy = rig.records("T")
    assert Property.ONCE_SCOPE in decode_properties(original.properties)
    assert {"ORBITMQ_SCOPE", "ORBITMQ_EPOCH", "ORBITMQ_ONCE_KEY"}.isdisjoint(decode_properties(copy.properties))
    rig.reopen()
    assert rig.idempotence.memory.key_count == 1


def test_a_message_sent_back_is_no_repeat(rig):
    rig.sent_ok("T", b"one", once())
    (record,) = rig.records("T")
    for _ in range(2):
        answer = rig.call(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            {"offset": record.physical_offset, "group": "g", "delayLevel": 1, "originTopic": "T"},
        )
        assert answer.code == ResponseCode.SUCCESS
    copies = rig.records("SCHEDULE_TOPIC_XXXX", 0)
    assert len(copies) == 2
    assert all("ORBITMQ_SCOPE" not in decode_properties(copy.properties) for copy in copies)


def test_a_consumers_own_send_to_its_retry_topic_is_no_repeat(rig):
    rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"g"}')
    for _ in range(2):
        rig.sent_ok("%RETRY%g", b"again", once())
    assert len(rig.records("%RETRY%g")) == 2


# --- batches --------------------------------------------------------------------------------------------------------


def batched(rig, body, common=None):
    return rig.send("T", body, common or {}, code=RequestCode.SEND_BATCH_MESSAGE, batch="true")


def test_a_batch_is_repeated_as_a_whole(rig):
    body = batch(once(key="a"), once(key="b"), once(key="c"))
    first, again = batched(rig, body), batched(rig, body)
    assert first.code == ResponseCode.SUCCESS
    assert again.fields == first.fields
    assert len(rig.records("T")) == 3


def test_a_batch_of_which_a_part_is_known_stores_the_rest(rig):
    rig.sent_ok("T", b"a", once(key="a"))
    answer = batched(rig, batch(once(key="a"), once(key="b")))
    assert [record.body for record in rig.records("T")] == [b"a", b"b"]
    identifiers = [
        f"{rig.broker.core.facilities.store_host.hex().upper()}{one.physical_offset:016X}" for one in rig.records("T")
    ]
    assert answer.fields["msgId"] == ",".join(identifiers)
    assert answer.fields["queueOffset"] == "0"


def test_scope_and_epoch_may_stand_on_the_batch(rig):
    body = batch({"UNIQ_KEY": "A" * 32}, {"UNIQ_KEY": "B" * 32})
    common = {"ORBITMQ_SCOPE": "s", "ORBITMQ_EPOCH": "1", "UNIQ_KEY": "C" * 32}
    assert batched(rig, body, common).fields == batched(rig, body, common).fields
    assert len(rig.records("T")) == 2


@pytest.mark.parametrize(
    "parts",
    [
        (once(key="a"), once(key="b", scope="other")),
        (once(key="a"), once(key="b", epoch=2)),
        (once(key="a"), {"UNIQ_KEY": "X" * 32}),
        (once(key="a"), once(key="a")),
    ],
    ids=["scopes", "epochs", "one without", "equal keys"],
)
def test_a_mixed_batch_is_refused(rig, parts):
    answer = batched(rig, batch(*parts))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.records("T") == []


# --- synchronous flush ----------------------------------------------------------------------------------------------


def use_worker(store, worker):
    store._lanes = Lanes.of(worker)
    store._flushing._worker = store.durable_saves._worker = worker


def test_a_repeat_waits_for_the_disk_as_the_first_send_does(make_rig):
    rig = make_rig(store=SYNC)
    rig.sent_ok("T")
    worker = SteppedWorker()
    use_worker(rig.store, worker)
    first, second = rig.peer(), rig.peer()
    rig.send("T", b"x", once(), peer=first)
    rig.send("T", b"x", once(), peer=second)
    assert (first.sent, second.sent) == ([], []), "nobody may be told before the sync"
    worker.close()
    assert first.sent[0].code == second.sent[0].code == ResponseCode.SUCCESS
    assert told(second.sent[0]) == first.sent[0].fields
    third = rig.peer()
    assert rig.send("T", b"x", once(), peer=third).code == ResponseCode.SUCCESS, "it is on the disk already"


def test_a_repeat_times_out_as_the_first_send_does(make_rig):
    rig = make_rig(store=SYNC)
    rig.sent_ok("T")
    worker = SteppedWorker()
    use_worker(rig.store, worker)
    peer = rig.peer()
    rig.send("T", b"x", once(), peer=peer)
    rig.send("T", b"x", once(), peer=peer)
    rig.clock.advance(rig.store.settings.sync_flush_timeout_ms + 1)
    rig.store.run_due(rig.clock.monotonic_ns())
    assert [answer.code for answer in peer.take()] == [ResponseCode.FLUSH_DISK_TIMEOUT] * 2
    worker.close()


# --- bounds ---------------------------------------------------------------------------------------------------------


def bounded(rig, **bounds):
    rig.once_bounds = KeyBounds(**bounds)
    rig.reopen()
    return rig


@pytest.mark.parametrize(
    ("bounds", "values", "word"),
    [
        ({"scopes": 1}, once(scope="b"), "all names without '/' have 1 scopes of 1"),
        ({"memory_bytes": 1_800}, once(key="b"), "idempotenceMemoryMax"),
    ],
)
def test_without_room_a_new_send_is_refused_and_repeats_are_answered(rig, bounds, values, word):
    bounded(rig, **bounds)
    rig.sent_ok("T", b"x", once(key="a"))
    answer = rig.send("T", b"y", values)
    assert answer.code == ResponseCode.IDEMPOTENCE_FULL
    assert word in answer.remark
    rig.sent_ok("T", b"x", once(key="a"))
    rig.sent_ok("T", b"plain")
    assert [record.body for record in rig.records("T")] == [b"x", b"plain"]


def test_a_new_epoch_makes_room(rig):
    bounded(rig, memory_bytes=2_430)
    for epoch in range(5):
        rig.sent_ok("T", b"x", once(epoch=epoch))
    assert rig.idempotence.memory.key_count == 2


def test_a_transient_scope_gives_way_after_a_minute_and_not_before(rig):
    bounded(rig, scopes=3)
    rig.sent_ok("T", b"x", once(scope="~a"))
    rig.sent_ok("T", b"x", once(scope="~b"))
    rig.clock.advance(59_000)
    assert rig.send("T", b"x", once(scope="~c")).code == ResponseCode.IDEMPOTENCE_FULL
    rig.clock.advance(2_000)
    rig.sent_ok("T", b"x", once(scope="~c"))
    assert rig.idempotence.memory.forgotten_count == 2


def test_a_lasting_scope_stays_until_its_time(rig):
    bounded(rig, lasting_idle_ms=3_600_000)
    rig.sent_ok("T", b"x", once())
    rig.clock.advance(3_500_000)
    rig.sent_ok("T", b"x", once())
    assert len(rig.records("T")) == 1
    rig.clock.advance(3_700_000)
    rig.sent_ok("T", b"plain")
    rig.sent_ok("T", b"x", once())
    assert len(rig.records("T")) == 3


def test_a_broker_without_the_memory_refuses_instead_of_promising(rig):
    rig.broker.rooms.admission.idempotence = None
    answer = rig.send("T", b"x", once())
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.records("T") == []


def test_the_figures_are_shown(rig):
    rig.sent_ok("T", b"x", once())
    rig.sent_ok("T", b"x", once())
    facts = rig.broker.rooms.administration.broker.more_facts[0]()
    assert (facts["orbitmqRepeatedSends"], facts["orbitmqOnceScopes"], facts["orbitmqOnceKeys"]) == ("1", "1", "1")
