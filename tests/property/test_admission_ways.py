"""The short way through admission against the general one: where both place a message, they place it alike."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.broker.admission import Admission
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sending import Origin, Sending
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.topics import TopicTable
from orbitmq.clock import ManualClock
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.commands import ResponseCode


class NoFile:
    def load(self):
        return None

    def save(self, document):
        raise AssertionError("nothing is saved here")


class Writable:
    writable = True


def admission() -> Admission:
    settings_, clock = BrokerSettings(), ManualClock()
    topics, groups = TopicTable(settings_, NoFile(), clock), GroupTable(settings_, NoFile(), clock)
    topics.load()
    groups.load()
    for topic in (
        TopicConfig(topic_name="plain", read_queue_nums=4, write_queue_nums=2),
        TopicConfig(topic_name="ordered", order=True, read_queue_nums=1, write_queue_nums=1),
        TopicConfig(topic_name="many", topic_filter_type="MULTI_TAG", read_queue_nums=1, write_queue_nums=1),
    ):
        topics.put(topic, {})
    return Admission(
        settings_,
        topics,
        groups,
        QueueLocks(),
        Writable(),
        store_host=pack_host("10.0.0.1", 10_911),
        next_unique_key=lambda: "made here",
        unwritable=lambda: Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "full"),
        body_bytes_max=64,
        random_below=lambda bound: bound - 1,
    )


ADMISSION = admission()
NAMES = st.sampled_from(
    [
        *(Property.KEYS, Property.TAGS, Property.UNIQ_KEY, Property.WAIT, Property.DELAY, Property.POP_CK),
        *(Property.MSG_REGION, Property.TRAN_MSG, Property.TIMER_DELAY_SEC, Property.INNER_NUM, Property.DUE_MS),
        *(Property.REAL_TOPIC, Property.REAL_QID, Property.RETRY_TOPIC, Property.CLUSTER),
        *(Property.ONCE_SCOPE, Property.ONCE_EPOCH, Property.ONCE_KEY, Property.ONCE_SCOPE, Property.ONCE_EPOCH),
        *("a", "b", "", "ü"),
    ]
)
VALUES = st.sampled_from(["", "1", "true", "false", "TRUE", "x\x01y", "TagA", "k1 k2", "€", "0" * 32])
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
ORIGINS = st.sampled_from([Origin(pack_host("10.0.0.9", 5), 479), Origin(pack_host("::1", 5), 479)])


@settings(max_examples=400, deadline=None)
@given(SENDINGS, ORIGINS)
def test_short_and_general_way_agree(sending, origin):
    short = ADMISSION._plain.admit(sending, origin, 1_000)
    if short is None:
        return
    general = ADMISSION._admit(sending, origin, 1_000, 0)
    assert decode_properties(short.message.properties) == decode_properties(general.message.properties)
    short.message.properties = general.message.properties
    assert short == general


def test_the_short_way_is_taken_by_what_clients_send():
    text = "KEYS\x01k\x02UNIQ_KEY\x01" + "A" * 32 + "\x02WAIT\x01true\x02TAGS\x01a\x02"
    origin = Origin(pack_host("10.0.0.9", 5), 479)
    for properties in (text, text[:-1]):
        sending = Sending("plain", 1, b"x", properties)
        assert ADMISSION._plain.admit(sending, origin, 1_000) is not None
    delayed = ADMISSION._plain.admit(Sending("plain", 1, b"x", text + "DELAY\x011\x02"), origin, 1_000)
    assert delayed is not None
    assert delayed.message.tags_code == 2_001
    assert ADMISSION._plain.admit(Sending("plain", 1, b"x", text + "DELAY\x0199\x02"), origin, 1_000) is None


def test_what_was_remembered_of_a_topic_goes_with_a_change():
    own = admission()
    origin = Origin(pack_host("10.0.0.9", 5), 479)
    sending = Sending("plain", 1, b"x", "UNIQ_KEY\x01k\x02")
    assert own._plain.admit(sending, origin, 1_000) is not None
    own._topics.put(TopicConfig(topic_name="plain", read_queue_nums=1, write_queue_nums=1), {})
    assert own._plain.admit(sending, origin, 1_000) is None
    own._topics.delete("plain")
    assert own._plain.admit(Sending("plain", 0, b"x", "UNIQ_KEY\x01k\x02"), origin, 1_000) is None
