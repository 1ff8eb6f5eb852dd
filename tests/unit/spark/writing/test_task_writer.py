"""Rows into requests: what a message has, where it goes, and what is found wrong before anything is sent."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra 'spark' is not installed")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from orbitmq.client.sending.queue_choice import choose_by_key  # noqa: E402
from orbitmq.errors import MessageIllegalError  # noqa: E402
from orbitmq.protocol.remoting.bodies import MessageQueue  # noqa: E402
from orbitmq.protocol.remoting.idempotence_bodies import ScopeView  # noqa: E402
from orbitmq.spark.writing import task_writer  # noqa: E402
from orbitmq.spark.writing.scopes import BrokerSet, job_writer, stream_writer  # noqa: E402
from orbitmq.spark.writing_options import write_options  # noqa: E402

QUERY = "0b1f2c3d-0000-1111-2222-333344445555"
STREAM = stream_writer(QUERY, 7)
TWO = {"broker-a": 4, "broker-b": 4}
MAP = pa.map_(pa.string(), pa.string())
DUE = pa.timestamp("us", tz="UTC")


def table(**columns):
    return pa.RecordBatch.from_pydict(columns)


def options(topic="orders", **more):
    given = {"nameServer": "127.0.0.1:1", **({} if topic is None else {"topic": topic}), **more}
    return write_options({name: str(value) for name, value in given.items()}, streaming=False)


def names(sink):
    """What the brokers remember messages by."""
    return Counter(
        (properties["ORBITMQ_SCOPE"], properties["ORBITMQ_EPOCH"], properties["ORBITMQ_ONCE_KEY"], frame.broker, body)
        for frame, body, properties in sink.stored
    )


# --- what a message has -----------------------------------------------------------------------------------------------


def test_all_columns(sink, write):
    brokers = sink()
    batch = table(
        body=["text"], tags=["red"], keys=["k1 k2"], properties=pa.array([[("colour", "blau"), ("größe", "5")]], MAP),
        flag=pa.array([-5], pa.int32()), queueId=pa.array([3], pa.int32()), shardingKey=["s"],
        deliverTimestamp=pa.array([1_800_000_000_000_001], DUE),
    )  # fmt: skip
    assert write(brokers, batch, writer=STREAM)[0] == 1
    ((frame, body, properties),) = brokers.stored
    assert (frame.topic, frame.broker, frame.queue_id, frame.is_timed, body) == ("orders", "broker-a", 3, True, b"text")
    assert properties.pop("ORBITMQ_ONCE_KEY").startswith("0.")
    assert len(properties.pop("UNIQ_KEY")) == 32
    assert properties == {
        "WAIT": "true", "ORBITMQ_SCOPE": STREAM.scope("orders", BrokerSet(("broker-a",), (4,))), "ORBITMQ_EPOCH": "7",
        "TAGS": "red", "KEYS": "k1 k2", "__SHARDINGKEY": "s", "colour": "blau", "größe": "5",
        "TIMER_DELIVER_MS": "1800000000001",
    }  # fmt: skip


def test_nulls_are_left_out(sink, write):
    brokers = sink()
    batch = table(
        body=[b"x", b"y"], tags=[None, "t"], properties=pa.array([None, [("a", "b")]], MAP),
        delaySeconds=pa.array([None, 9], pa.int32()),
    )  # fmt: skip
    write(brokers, batch, options=options(dedup="none"))
    first, second = (properties for _, _, properties in brokers.stored)
    assert set(first) == {"WAIT", "UNIQ_KEY"}
    assert {name: second[name] for name in ("TAGS", "a", "TIMER_DELAY_SEC")} == {
        "TAGS": "t",
        "a": "b",
        "TIMER_DELAY_SEC": "9",
    }


def test_a_due_time_is_never_rounded_down(sink, write):
    brokers = sink()
    write(brokers, table(body=["x"] * 3, deliverTimestamp=pa.array([1_000_000, 1_000_001, 1_000_999], DUE)))
    assert [properties["TIMER_DELIVER_MS"] for _, _, properties in brokers.stored] == ["1000", "1001", "1001"]


def test_large_columns_and_slices(sink, write):
    brokers = sink()
    batch = table(body=pa.array([b"a", b"b", b"c", b"d"], pa.binary()), tags=pa.array(["1", "2", "3", "4"]))
    write(brokers, batch.slice(1, 2), writer=STREAM)
    assert [(body, properties["TAGS"]) for _, body, properties in brokers.stored] == [(b"b", "2"), (b"c", "3")]


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=60), st.integers(1, 2_000))
@settings(deadline=None, max_examples=50)
def test_requests_hold_all_rows_in_their_order_and_no_more_than_asked(sink, write, rows, size):
    brokers = sink()
    write(brokers, table(body=pa.array(rows, pa.binary())), writer=STREAM, options=options(batchBytes=size))
    assert brokers.bodies == rows
    assert all(len(frame.body) <= size or frame.row_count == 1 for frame in brokers.frames)
    assert [frame.first for frame in brokers.frames] == [
        sum(frame.row_count for frame in brokers.frames[:number]) for number in range(len(brokers.frames))
    ]


def test_a_request_holds_no_more_rows_than_the_limit(sink, write, monkeypatch):
    monkeypatch.setattr("orbitmq.spark.writing.task_writer.SPARK_BATCH_MESSAGES_MAX", 5)
    brokers = sink()
    write(brokers, table(body=["x"] * 12), writer=STREAM)
    assert [frame.row_count for frame in brokers.frames] == [5, 5, 2]


def test_requests_take_turns_with_the_queues(sink, write):
    brokers = sink()
    write(brokers, table(body=["x" * 100] * 8), options=options(batchBytes=1))
    assert [frame.queue_id for frame in brokers.frames] == [0, 1, 2, 3] * 2


# --- names ------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["t1", "t2"])), min_size=1, max_size=30), st.randoms()
)
@settings(deadline=None, max_examples=50)
def test_rows_in_another_order_have_the_same_names(sink, write, rows, random):
    def sent(rows, cut):
        brokers = sink(TWO)
        table_of = [
            table(body=[body for body, _ in part], topic=[topic for _, topic in part])
            for part in (rows[:cut], rows[cut:])
            if part
        ]
        write(brokers, *table_of, writer=STREAM, options=options(None))
        return names(brokers)

    first = sent(rows, 0)
    assert set(first.values()) == {1}
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert sent(shuffled, len(rows) // 2) == first


def test_columns_of_large_types_are_the_same_rows(sink, write):
    """As the setting spark.sql.execution.arrow.useLargeVarTypes makes them."""
    plain = table(body=[b"a", b"b"], tags=["t", None], key=[b"k", None], properties=pa.array([[("a", "b")], None], MAP))
    large = pa.map_(pa.large_string(), pa.large_string())
    kinds = [pa.large_binary(), pa.large_string(), pa.large_binary(), large]
    columns = [column.cast(kind) for column, kind in zip(plain.columns, kinds, strict=True)]
    first, second = sink(), sink()
    write(first, plain, writer=STREAM)
    write(second, pa.RecordBatch.from_arrays(columns, names=plain.schema.names), writer=STREAM)
    assert names(second) == names(first)


SAID = st.tuples(st.sampled_from("ab"), st.none() | st.just("t"), st.none() | st.just([("colour", "blau")]))


@given(st.lists(SAID, min_size=2, max_size=12), st.integers(0, 12), st.integers(1, 400))
@settings(deadline=None, max_examples=50)
def test_the_name_of_a_row_does_not_depend_on_the_rows_beside_it(sink, write, rows, cut, room):
    """Batches in which no row has a tag, or a property, are among those in which some have."""

    def sent(*parts):
        brokers = sink()
        made = [
            table(
                body=[body for body, _, _ in part],
                tags=pa.array([tag for _, tag, _ in part], pa.string()),
                properties=pa.array([found for _, _, found in part], MAP),
            )
            for part in parts
            if part
        ]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(task_writer, "SPARK_ENCODED_BYTES", room)
            write(brokers, *made, writer=STREAM)
        return names(brokers)

    assert sent(rows) == sent(rows[:cut], rows[cut:]) == sent(*([row] for row in reversed(rows)))


def test_everything_that_a_row_says_is_part_of_its_name(sink, write):
    brokers = sink()
    batch = table(
        body=["x"] * 6, tags=[None, "t", None, None, None, None], keys=[None, None, "t", None, None, None],
        flag=pa.array([0, 0, 0, 1, 0, 0], pa.int32()), queueId=pa.array([None, None, None, None, 0, 1], pa.int32()),
    )  # fmt: skip
    write(brokers, batch, writer=STREAM)
    assert {properties["ORBITMQ_ONCE_KEY"][-6:] for _, _, properties in brokers.stored} == {"000000"}
    assert len({properties["ORBITMQ_ONCE_KEY"] for _, _, properties in brokers.stored}) == 6


def test_a_row_key_is_the_name_wherever_the_row_stands(sink, write):
    first, second = sink(TWO), sink(TWO)
    rows = table(body=[f"b{number}" for number in range(50)], id=[f"order {number}" for number in range(50)])
    write(first, rows, writer=STREAM, options=options(rowKey="id"))
    write(second, rows.slice(0, 20), writer=STREAM, part=4, options=options(rowKey="id"))
    assert names(second) <= names(first)
    assert first.stored[3][2]["ORBITMQ_ONCE_KEY"].startswith("order ")
    assert len({frame.broker for frame in first.frames}) == 2


def test_a_row_key_names_one_row(sink, write):
    with pytest.raises(MessageIllegalError, match="row 2 of partition 0 has the row key of an earlier row"):
        write(sink(), table(body=["a", "b", "c"], id=[1, 2, 1]), writer=STREAM, options=options(rowKey="id"))


# --- where it goes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "now", [{"broker-a": 4}, {**TWO, "broker-0": 4}, {"broker-b": 9}], ids=["one left", "a new one", "another size"]
)
def test_a_repeat_goes_where_the_first_attempt_went_whatever_the_route_is(sink, write, now):
    rows = table(body=[f"row {number}" for number in range(40)], shardingKey=[f"k{number % 7}" for number in range(40)])
    for part in (0, 1):
        first = sink(TWO)
        write(first, rows, writer=STREAM, part=part)
        scope = first.stored[0][2]["ORBITMQ_SCOPE"]
        again = sink(now, [ScopeView(scope=scope, epoch=7, keys=40)])
        write(again, rows, writer=STREAM, part=part)
        assert names(again) == names(first)
        fresh = sink(now)
        write(fresh, rows, writer=STREAM, part=part)
        assert names(fresh) != names(first)


def test_partitions_are_spread_over_the_brokers(sink, write):
    found = set()
    for part in range(2):
        brokers = sink(TWO)
        write(brokers, table(body=["x"] * 10), writer=STREAM, part=part)
        (broker,) = {frame.broker for frame in brokers.frames}
        found.add(broker)
    assert found == set(TWO)


def test_a_sharding_key_keeps_its_queue_and_its_order(sink, write):
    brokers = sink(TWO)
    keys = [None if number % 5 == 0 else f"key {number % 5}" for number in range(100)]
    write(brokers, table(body=[f"{number:03}" for number in range(100)], shardingKey=keys), writer=STREAM)
    queues = [MessageQueue("orders", name, queue) for name in sorted(TWO) for queue in range(4)]
    seen = {}
    for frame, body, properties in brokers.stored:
        key = properties.get("__SHARDINGKEY")
        assert frame.is_ordered == (key is not None)
        if key is not None:
            assert MessageQueue("orders", frame.broker, frame.queue_id) == choose_by_key(queues, key)
            assert seen.get(key, b"") < body
            seen[key] = body
    assert len(seen) == 4


@pytest.mark.parametrize("more", [{"compression": "zlib"}, {"maxMessageBytes": 5_100}, {}])
def test_rows_of_one_sharding_key_keep_their_order_in_whatever_way_they_travel(sink, write, more):
    """Long bodies are compressed, which a request says of all its rows; those that leave no room in a batch travel alone."""
    brokers = sink(TWO)
    numbers = range(90)
    batch = table(
        body=[("x" * 5_000 if number % 7 in (1, 4, 5) else "short") + str(number) for number in numbers],
        keys=[str(number) for number in numbers], shardingKey=[None if number % 4 == 3 else f"k{number % 2}" for number in numbers],
    )  # fmt: skip
    write(brokers, batch, writer=STREAM, options=options(**more))
    assert len(brokers.stored) == 90
    seen = {}
    for frame, _, properties in brokers.stored:
        if "__SHARDINGKEY" in properties:
            assert frame.is_ordered
            seen.setdefault(properties["__SHARDINGKEY"], []).append(int(properties["KEYS"]))
    assert seen == {
        f"k{key}": [number for number in numbers if number % 4 != 3 and number % 2 == key] for key in (0, 1)
    }


def test_delay_levels_travel_alone(sink, write):
    brokers = sink()
    write(brokers, table(body=["a", "b", "c"], delayLevel=pa.array([None, 3, None], pa.int32())), writer=STREAM)
    assert sorted((frame.properties is None, body) for frame, body, _ in brokers.stored) == [
        (False, b"b"), (True, b"a"), (True, b"c"),
    ]  # fmt: skip


def test_a_body_that_leaves_no_room_in_a_batch_travels_alone(sink, write):
    brokers = sink()
    write(brokers, table(body=["x" * 900, "y" * 1_000, "z"]), writer=STREAM, options=options(maxMessageBytes=1_000))
    found = {len(body): frame.properties is None for frame, body, _ in brokers.stored}
    assert found == {1: True, 900: False, 1_000: False}
    assert all(len(frame.body) <= 1_000 for frame in brokers.frames)
    assert all("ORBITMQ_ONCE_KEY" in properties for _, _, properties in brokers.stored)


def test_at_a_broker_that_does_not_recognise_repeats(sink, write, caplog, monkeypatch):
    """Names are on the messages all the same, times travel alone, and the log says it once."""
    monkeypatch.setattr(task_writer, "_warned", set())
    due = pa.array([None, 1_800_000_000_000_000], DUE)
    with caplog.at_level(logging.WARNING, "orbitmq.spark"):
        for _ in range(2):
            brokers = sink()
            brokers.scopes = None
            write(brokers, table(body=["a", "b"], deliverTimestamp=due), writer=STREAM)
    assert [(frame.properties is None, body) for frame, body, _ in brokers.stored] == [(True, b"a"), (False, b"b")]
    assert all("ORBITMQ_ONCE_KEY" in properties for _, _, properties in brokers.stored)
    assert len(caplog.records) == 1
    assert "at least once" in caplog.text


def test_without_dedup_times_travel_in_batches_at_brokers_that_are_ours(sink, write):
    """Who they are is asked only where rows may have times."""
    due = pa.array([None, 1_800_000_000_000_000, 1_800_000_000_001_000], DUE)
    for scopes, shapes in (([], [True]), (None, [True, False, False])):
        brokers = sink()
        brokers.scopes = scopes
        write(brokers, table(body=["a", "b", "c"], deliverTimestamp=due), options=options(dedup="none"))
        assert [frame.properties is None for frame in brokers.frames] == shapes
        assert brokers.bodies == [b"a", b"b", b"c"]
        assert brokers.asked == ["/@"]
    brokers = sink()
    write(brokers, table(body=["a"]), options=options(dedup="none"))
    assert brokers.asked == [""]


def test_a_task_of_a_job_tells_what_it_sent_whatever_the_order(sink, write):
    marks = []
    for bodies in (["a", "b", "b"], ["b", "a", "b"], ["a", "b"]):
        brokers = sink()
        write(brokers, table(body=bodies), writer=job_writer("night", 2, brief=False), part=2)
        ((_, _, end),) = brokers.ends
        assert (end.epoch, end.brief) == (0, False)
        marks.append(end.mark)
    assert marks[0] == marks[1] != marks[2]


def test_an_empty_task_asks_nobody(sink, write):
    brokers = sink()
    assert write(brokers, table(body=pa.array([], pa.string())), writer=STREAM) == (0, {})
    assert (brokers.frames, brokers.asked) == ([], [])


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": ["a", None]}, "row 101 of partition 0 has no body"),
        ({"body": ["a", ""]}, "row 101 of partition 0 has an empty body"),
        ({"body": ["a", "b" * 1001]}, "row 101 .* body of 1001 bytes, and 1000 is the most"),
        ({"body": ["a", "b"], "topic": ["t", None]}, "row 101 .* has no topic"),
        ({"body": ["a", "b"], "topic": ["t", "a b"]}, "row 101 .* a topic that cannot be"),
        ({"body": ["a", "b"], "tags": ["t", "a||b"]}, r"row 101 .* '\|\|' in tags"),
        ({"body": ["a", "b"], "tags": [None, " "]}, "row 101 .* blank tags"),
        ({"body": ["a", "b"], "keys": ["k", "a\x01b"]}, "row 101 .* separator .* keys"),
        ({"body": ["a", "b"], "properties": pa.array([[("a", "b")], [("a", None)]], MAP)}, "row 101 .* null or blank"),
        ({"body": ["a", "b"], "properties": pa.array([[("a", "b")], [("KEYS", "x")]], MAP)}, "row 101 .* 'KEYS' is reserved"),
        ({"body": ["a", "b"], "properties": pa.array([[("a", "b")], [("c", "\x02")]], MAP)}, "row 101 .* separator"),
        ({"body": ["a", "b"], "properties": pa.array([None, [("c", "x" * 33_000)]], MAP)}, "row 101 .* bytes of properties"),
        ({"body": ["a", "b"], "queueId": pa.array([3, 4], pa.int32())}, "row 101 .* has queueId 4"),
        ({"body": ["a", "b"], "queueId": pa.array([3, -4], pa.int32())}, "row 101 .* has queueId -4"),
        ({"body": ["a", "b"], "delaySeconds": pa.array([3, -4], pa.int32())}, "row 101 .* has delaySeconds -4"),
        ({"body": ["a", "b"], "delayLevel": pa.array([1, 0], pa.int32())}, "row 101 .* has delayLevel 0"),
        ({"body": ["a", "b"], "deliverTimestamp": pa.array([1_000, -1], DUE)}, "row 101 .* has deliverTimestamp 0"),
        (
            {"body": ["a", "b"], "delaySeconds": pa.array([None, 4], pa.int32()), "delayLevel": pa.array([1, 2], pa.int32())},
            "row 101 .* more than one of",
        ),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_before_its_batch_is_sent(sink, write, columns, words):
    brokers = sink()
    topic = None if "topic" in columns else "orders"
    bad = table(**columns)
    absent = {name: pa.nulls(100, bad.schema.field(name).type) for name in columns}
    good = table(**{**absent, "body": ["good"] * 100, **({"topic": ["t"] * 100} if topic is None else {})})
    with pytest.raises(MessageIllegalError, match=words):
        write(brokers, good, bad, writer=STREAM, options=options(topic, maxMessageBytes=1000))
    assert len(brokers.bodies) == 100


# --- queues that rows name --------------------------------------------------------------------------------------------


def test_a_row_names_its_broker_and_queue_and_keeps_its_order(sink, write):
    brokers = sink(TWO)
    batch = table(
        body=[f"{number}" for number in range(40)], id=list(range(40)),
        brokerName=["broker-b" if number % 2 else "broker-a" for number in range(40)],
        queueId=pa.array([number % 3 for number in range(40)], pa.int32()),
    )  # fmt: skip
    write(brokers, batch, writer=job_writer("j", None, brief=True), options=options(rowKey="id", batchBytes=600))
    found = {}
    for frame, body, _ in brokers.stored:
        assert frame.is_ordered
        found.setdefault((frame.broker, frame.queue_id), []).append(int(body))
    assert found == {
        ("broker-b" if odd else "broker-a", queue): [
            number for number in range(40) if number % 2 == odd and number % 3 == queue
        ]
        for odd in (0, 1)
        for queue in range(3)
    }


def test_rows_that_name_no_broker_go_where_they_went(sink, write):
    plain, mixed = sink(TWO), sink(TWO)
    bodies = [f"{number}" for number in range(20)]
    write(plain, table(body=bodies, id=bodies), writer=STREAM, options=options(rowKey="id"))
    nothing = {"brokerName": pa.array([None] * 20, pa.string()), "queueId": pa.array([None] * 20, pa.int32())}
    write(mixed, table(body=bodies, id=bodies, **nothing), writer=STREAM, options=options(rowKey="id"))
    assert names(plain) == names(mixed)


@pytest.mark.parametrize(
    ("broker", "queue", "words"),
    [
        (
            "broker-c",
            0,
            r"row 1 of partition 0 has brokerName 'broker-c', and topic 'orders' is written at broker-a, broker-b",
        ),
        ("broker-a", None, "row 1 of partition 0 has a brokerName and no queueId"),
        ("broker-a", 4, "has queueId 4, and topic 'orders' has 4 queues"),
    ],
)
def test_a_place_that_is_not_there_is_named(sink, write, broker, queue, words):
    brokers = sink(TWO)
    batch = table(body=["a", "b"], brokerName=[None, broker], queueId=pa.array([None, queue], pa.int32()))
    with pytest.raises(MessageIllegalError, match=words):
        write(brokers, batch, writer=STREAM)
    assert not brokers.frames
