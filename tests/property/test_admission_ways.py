"""Admission against its reference, which reads everything into dictionaries; and a batch of one message is that message."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.property.admission_reference import admitted, alike

from orbitmq.broker.admission import Admission
from orbitmq.broker.batch_admission import BatchAdmission
from orbitmq.broker.core import Facilities
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sending import Origin, Placement, Sending
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.timers.intake import TimerIntake
from orbitmq.broker.topics import TopicTable
from orbitmq.clock import ManualClock
from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.names import FAR_TIMER_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.recall_handles import decode_handle
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.commands import ResponseCode


class NoFile:
    def load(self):
        return None

    def save(self, document):
        raise AssertionError("nothing is saved here")


class NoSlots:
    has_cancel_room = True

    def slot_count(self, slot_ms):
        raise AssertionError("without a limit nobody counts")


class Far:
    def accepts(self, deliver_ms, now_ms):
        return deliver_ms - now_ms > 60_000


def admission(body_bytes_max: int = 64, **changes: int) -> Admission:
    settings_, clock = BrokerSettings(**{"timer_max_delay_sec": 600} | changes), ManualClock()
    topics, groups = TopicTable(settings_, NoFile(), clock), GroupTable(settings_, NoFile(), clock)
    topics.load()
    groups.load()
    for topic in (
        TopicConfig(topic_name="plain", read_queue_nums=4, write_queue_nums=2),
        TopicConfig(topic_name="ordered", order=True, read_queue_nums=1, write_queue_nums=1),
        TopicConfig(topic_name="many", topic_filter_type="MULTI_TAG", read_queue_nums=1, write_queue_nums=1),
    ):
        topics.put(topic, {})
    store = SimpleNamespace(writable=True, settings=SimpleNamespace(max_message_size=body_bytes_max))
    host = Facilities(tables=NoFile, store_host=pack_host("10.0.0.1", 10_911), random_below=lambda bound: bound - 1)
    core = SimpleNamespace(
        settings=settings_, clock=clock, topics=topics, groups=groups, locks=QueueLocks(clock), store=store,
        facilities=host, check_writable=lambda: None,
    )  # fmt: skip
    made = Admission(core, TimerIntake(settings_, NoSlots(), Far()))
    made.next_unique_key = lambda: "made here"
    return made


ADMISSION = admission()
ROOMY = admission(4_096)
"""For batches, whose body holds the properties of their messages."""
UNLIMITED = admission(timer_max_delay_sec=0, timer_precision_ms=100)
"""Any later time is good, as by default."""
NAMES = st.sampled_from(
    [
        *(Property.KEYS, Property.TAGS, Property.UNIQ_KEY, Property.WAIT, Property.DELAY, Property.POP_CK),
        *(Property.MSG_REGION, Property.TRAN_MSG, Property.TIMER_DELAY_SEC, Property.INNER_NUM, Property.DUE_MS),
        *(Property.REAL_TOPIC, Property.REAL_QID, Property.RETRY_TOPIC, Property.CLUSTER),
        *(Property.ONCE_SCOPE, Property.ONCE_EPOCH, Property.ONCE_KEY, Property.ONCE_SCOPE, Property.ONCE_EPOCH),
        *(Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS, Property.TIMER_DELIVER_MS),
        *(Property.PRIORITY, Property.PRIORITY, Property.SHARDING_KEY, Property.LITE_TOPIC),
        *(Property.TIMER_OUT_MS, Property.TIMER_DEL_UNIQKEY, Property.LEFT_MS, Property.REAL_UNIQ_KEY),
        *("a", "b", "", "ü"),
    ]
)
VALUES = st.sampled_from(
    [
        "",
        "1",
        "true",
        "false",
        "TRUE",
        "x\x01y",
        "TagA",
        "k1 k2",
        "€",
        "0" * 32,
        "0",
        "5",
        "2500",
        "61001",
        "600000",
        "-3",
    ]
)
ENTRIES = st.lists(st.tuples(NAMES, VALUES), max_size=5)


@st.composite
def texts(draw):
    """Property texts: tidy ones, ones that begin with a unique key, and torn ones."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in draw(ENTRIES))
    if draw(st.booleans()):
        text = f"UNIQ_KEY\x01{'A' * 32}\x02{text}"
    cut = draw(st.sampled_from(["", "last separator", "junk"]))
    return text[:-1] if cut == "last separator" else text + "junk" if cut == "junk" else text


SENDINGS = st.builds(
    Sending,
    topic=st.sampled_from(["plain", "ordered", "many", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "new", "no blank"]),
    queue_id=st.integers(-1, 5),
    body=st.sampled_from([b"", b"x", b"x" * 64, b"x" * 65]),
    properties=texts() | st.text(max_size=12),
    flag=st.integers(0, 3),
    sys_flag=st.sampled_from([0, 1, 0x301, 2, 4, 8, 0x30, 0x40]),
    born_timestamp=st.just(7),
    default_topic=st.just("TBW102"),
    default_topic_queues=st.just(4),
    unit_mode=st.booleans(),
    reconsume_times=st.integers(0, 20),
    max_reconsume_times=st.none() | st.integers(0, 20),
)
ORIGIN = Origin(pack_host("10.0.0.9", 5), 479)
ORIGINS = st.sampled_from([Origin(pack_host("10.0.0.9", 5), 479), Origin(pack_host("::1", 5), 479)])


def judged(admission: Admission, sending: Sending, origin: Origin, now_ms: int) -> Placement | Refusal:
    try:
        return admission._admit(sending, origin, now_ms, 0)
    except Refusal as refusal:
        return refusal


def reference(admission: Admission, sending: Sending, origin: Origin, now_ms: int) -> Placement | Refusal:
    try:
        return admitted(admission, sending, origin, now_ms)
    except Refusal as refusal:
        return refusal


@settings(max_examples=600)
@given(SENDINGS, ORIGINS)
def test_every_message_is_placed_as_by_the_reference(sending, origin):
    found = judged(ADMISSION, sending, origin, 1_000)
    assert alike(found, reference(ADMISSION, sending, origin, 1_000)), found


@settings(max_examples=400, deadline=None)
@given(texts())
@example(text=f"{Property.PRIORITY}\x010\x02")
def test_a_batch_of_one_message_is_that_message(text):
    """What a batch cannot hold at all is refused there; everything else ends in the same place with the same properties."""
    origin = Origin(pack_host("10.0.0.9", 5), 479)
    single = ROOMY.admit(Sending("plain", 1, b"x", text), origin, 1_000, 0)
    body = encode_batch([BatchItem(0, b"x", text.encode())])
    batch = BatchAdmission(ROOMY).admit(Sending("plain", 1, body), origin, 1_000)
    values = decode_properties(text)
    if isinstance(batch, Refusal):
        only_alone = values.keys() & {Property.DELAY, Property.TIMER_DEL_UNIQKEY, Property.TRAN_MSG, Property.INNER_NUM}
        assert isinstance(single, Refusal) or only_alone
        if isinstance(single, Refusal) and not only_alone:
            assert single.code == batch.code  # of two faults either may be named
        return
    assert isinstance(single, Placement)
    (message,) = batch.messages
    mine, theirs = decode_properties(message.properties), decode_properties(single.message.properties)
    if Property.UNIQ_KEY not in values:
        mine.pop(Property.UNIQ_KEY), theirs.pop(Property.UNIQ_KEY)
    if Property.PRIORITY in values:  # it means nothing in a batch, and stays there; alone it chooses the queue, or goes
        mine.pop(Property.PRIORITY, None), theirs.pop(Property.PRIORITY, None)
    else:
        assert message.queue_id == single.message.queue_id
    assert mine == theirs
    assert (message.topic, message.tags_code) == (single.message.topic, single.message.tags_code)


@given(st.integers(0, 700_000), st.sampled_from([Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS]))
def test_a_time_is_kept_to_the_millisecond_by_every_way(ms, name):
    """A planted bug in one of the ways, a slot in place of the time, would be seen here."""
    text = f"UNIQ_KEY\x01{'A' * 32}\x02{name}\x01{ms}\x02"
    sending, origin = Sending("plain", 1, b"x", text), Origin(pack_host("10.0.0.9", 5), 479)
    due_ms = ms + 1_001 if name == Property.TIMER_DELAY_MS else ms
    placed = ADMISSION.admit(sending, origin, 1_000, 0)
    if due_ms > 601_000 + (name == Property.TIMER_DELAY_MS):
        assert isinstance(placed, Refusal)
        return
    assert isinstance(placed, Placement)
    values = decode_properties(placed.message.properties)
    if due_ms <= 1_000 or (name == Property.TIMER_DELAY_MS and not ms):
        assert (placed.message.topic, placed.handle) == ("plain", None)
    else:
        assert placed.message.topic == (FAR_TIMER_TOPIC if due_ms > 61_000 else TIMER_TOPIC)
        is_stated = name == Property.TIMER_DELIVER_MS and due_ms <= 61_000
        assert values.get(Property.DUE_MS) == (None if is_stated else str(due_ms))
        assert not is_stated or values[name] == str(due_ms)
        slot_ms = int(values[Property.TIMER_OUT_MS])
        assert slot_ms < due_ms <= slot_ms + 1_000
        assert decode_handle(placed.handle or "").timestamp_ms == slot_ms + 1


def test_what_was_remembered_of_a_topic_goes_with_a_change():
    own = admission()
    sending = Sending("plain", 1, b"x", "UNIQ_KEY\x01k\x02")
    assert isinstance(own.admit(sending, ORIGIN, 1_000, 0), Placement)
    own._topics.put(TopicConfig(topic_name="plain", read_queue_nums=1, write_queue_nums=1), {})
    refusal = own.admit(sending, ORIGIN, 1_000, 0)
    assert isinstance(refusal, Refusal)
    assert refusal.code == ResponseCode.INVALID_PARAMETER


NOW = 1_795_000_000_000


STAMPED_AND_URGENT = "MSG_REGION\x01r\x02ORBITMQ_SCOPE\x01s\x02_SYS_MSG_PRIORITY_\x011\x02"


@settings(max_examples=600)
@example(Sending("plain", 0, b"x", STAMPED_AND_URGENT), 0, "", False)
@given(SENDINGS, st.integers(-2, 120_000), st.sampled_from(["", "0", "+", "٣"]), st.booleans())
def test_a_stated_time_is_placed_as_by_the_reference(sending, after_ms, digit, is_last):
    """A time of thirteen digits and nothing else to think about is read without the rules of time."""
    stated = f"TIMER_DELIVER_MS\x01{digit}{str(NOW + after_ms)[len(digit) :]}\x02"
    text = f"{sending.properties}{stated}" if is_last else f"{stated}{sending.properties}"
    sending = msgspec.structs.replace(sending, topic="plain", body=b"x", properties=text)
    found = judged(UNLIMITED, sending, ORIGIN, NOW)
    assert alike(found, reference(UNLIMITED, sending, ORIGIN, NOW)), found


@pytest.mark.parametrize(("after_ms", "topic"), [(1, TIMER_TOPIC), (60_000, TIMER_TOPIC), (60_001, FAR_TIMER_TOPIC)])
def test_where_the_usual_timer_message_waits(after_ms, topic):
    text = f"UNIQ_KEY\x01{'A' * 32}\x02TIMER_DELIVER_MS\x01{NOW + after_ms}\x02WAIT\x01true\x02TAGS\x01t\x02"
    placed = UNLIMITED.admit(Sending("plain", 1, b"x", text), ORIGIN, NOW, 0)
    assert isinstance(placed, Placement)
    assert placed.message.topic == topic
    assert alike(placed, admitted(UNLIMITED, Sending("plain", 1, b"x", text), ORIGIN, NOW))
