"""Tasks that run again, over each other, and against a broker that comes and goes: every row is there once."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from datetime import timedelta
from itertools import pairwise
from unittest import mock

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra 'spark' is not installed")

from orbitmq.client.answers import remote_error  # noqa: E402
from orbitmq.client.bulk.wave_connection import WaveConnection  # noqa: E402
from orbitmq.errors import ClientError, ConnectionLostError, SendFailedError, StaleEpochError  # noqa: E402
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode  # noqa: E402
from orbitmq.spark.writing import sending, tasks  # noqa: E402
from orbitmq.spark.writing.scopes import job_writer, stream_writer  # noqa: E402
from orbitmq.spark.writing.tasks import paced  # noqa: E402
from orbitmq.testing.embedded import EmbeddedBroker  # noqa: E402

QUERY = "0b1f2c3d-0000-1111-2222-333344445555"
ROWS = [f"row {number}" for number in range(300)]
ONCE_EACH = Counter(row.encode() for row in ROWS)


def table(**columns):
    return pa.RecordBatch.from_pydict(columns)


class KilledError(Exception):
    pass


def killed_after(*batches):
    yield from batches
    raise KilledError


def test_a_task_that_runs_again_stores_nothing_twice(rig):
    for _ in range(2):
        assert rig.write(table(body=ROWS), writer=stream_writer(QUERY, 3))[0] == 300
    assert rig.bodies() == ONCE_EACH


def test_the_rows_of_a_task_may_come_in_another_order_and_other_batches(rig):
    rig.write(table(body=ROWS[:200]), table(body=ROWS[200:]), writer=stream_writer(QUERY, 3))
    backwards = ROWS[::-1]
    rig.write(*(table(body=backwards[at : at + 70]) for at in range(0, 300, 70)), writer=stream_writer(QUERY, 3))
    assert rig.bodies() == ONCE_EACH


def test_rows_of_which_some_have_properties_may_come_in_another_order_and_other_batches(rig):
    rows = list(zip(ROWS, [None if number % 100 else "red" for number in range(len(ROWS))], strict=True))
    for size in (300, 70, 1):
        parts = [rows[at : at + size] for at in range(0, len(rows), size)]
        batches = [table(body=[b for b, _ in part], tags=pa.array([t for _, t in part], pa.string())) for part in parts]
        rig.write(*batches, writer=stream_writer(QUERY, 3))
        rows.reverse()
    assert rig.bodies() == ONCE_EACH


def test_a_body_of_the_largest_size_is_stored_once(rig):
    body = "x" * 4_194_304
    for _ in range(2):
        rig.write(table(body=["a", body, "b"]), writer=stream_writer(QUERY, 3))
    assert rig.bodies() == {b"a": 1, body.encode(): 1, b"b": 1}


def test_a_task_that_was_killed_in_the_middle_is_completed(rig):
    with pytest.raises(KilledError):
        rig.attempt(killed_after(table(body=ROWS[:120])), {"body": 0}, stream_writer(QUERY, 3))
    rig.write(table(body=ROWS), writer=stream_writer(QUERY, 3))
    assert rig.bodies() == ONCE_EACH


def test_two_attempts_at_the_same_time(rig):
    """One attempt runs whole while the other is between its batches."""

    def second_attempt_in_the_middle():
        yield table(body=ROWS[:150])
        rig.write(table(body=ROWS[::-1]), writer=stream_writer(QUERY, 3))
        yield table(body=ROWS[150:])

    rig.attempt(second_attempt_in_the_middle(), {"body": 0}, stream_writer(QUERY, 3))
    assert rig.bodies() == ONCE_EACH


def test_equal_rows_stay_as_many_as_they_were(rig):
    same = ["same"] * 5 + ROWS[:3] + ["same"] * 4
    for rows in (same, same[::-1]):
        rig.write(table(body=rows), writer=stream_writer(QUERY, 3))
    assert rig.bodies() == Counter(row.encode() for row in same)


def test_the_next_batch_of_a_query_is_other_rows(rig):
    for batch in (3, 4):
        rig.write(table(body=["same"]), writer=stream_writer(QUERY, batch))
    assert rig.bodies() == {b"same": 2}


def test_a_task_of_a_batch_that_is_over_is_refused(rig):
    for batch in (3, 4, 5):
        rig.write(table(body=[f"batch {batch}"]), writer=stream_writer(QUERY, batch))
    with pytest.raises(StaleEpochError, match=r"batch 3 of query .* is over, its batch 5 was begun"):
        rig.write(table(body=["late"]), writer=stream_writer(QUERY, 3))
    assert rig.bodies().total() == 3


def test_a_task_that_is_overtaken_while_it_runs_is_refused_by_the_broker(rig):
    def overtaken():
        yield table(body=["first"])
        for batch in (4, 5):
            rig.write(table(body=[f"batch {batch}"]), writer=stream_writer(QUERY, batch))
        yield table(body=["late"])

    with pytest.raises(StaleEpochError, match="whoever still sends in it was replaced"):
        rig.attempt(overtaken(), {"body": 0}, stream_writer(QUERY, 3))
    assert rig.bodies() == Counter([b"first", b"batch 4", b"batch 5"])


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_a_broker_that_came_back_still_knows_the_rows(rig, crash):
    rig.write(table(body=ROWS), writer=stream_writer(QUERY, 3))
    (rig.broker.crash if crash else rig.broker.restart)()
    rig.write(table(body=ROWS), writer=stream_writer(QUERY, 3))
    assert rig.bodies() == ONCE_EACH


# --- batch jobs -------------------------------------------------------------------------------------------------------


def test_a_task_of_a_job_ends_its_epoch(rig):
    writer = job_writer("night", 0, brief=False)
    rig.write(table(body=ROWS), writer=writer)
    rig.write(table(body=ROWS[::-1]), writer=writer)
    assert rig.bodies() == ONCE_EACH
    with pytest.raises(StaleEpochError, match="with other rows than the 299 of now"):
        rig.write(table(body=ROWS[1:]), writer=writer)
    assert rig.bodies() == ONCE_EACH


def test_rows_with_keys_move_between_tasks(rig):
    rows = table(body=ROWS, id=list(range(300)))
    writer = job_writer("night", None, brief=False)
    rig.write(rows.slice(0, 100), writer=writer, rowKey="id", part=0)
    rig.write(rows.slice(50, 250), writer=writer, rowKey="id", part=1)
    assert rig.bodies() == ONCE_EACH


def test_a_part_of_a_larger_work_that_runs_again_stores_nothing_twice(rig):
    """Also when a later part has begun; and a part may have no rows at all."""
    parts = {0: ROWS[:100], 1: ROWS[100:200], 5: ROWS[200:]}
    for step in (0, 0, 1, 5, 1, 0, 5):
        rig.write(
            table(body=parts[step], id=parts[step]), writer=job_writer("all", None, brief=False, step=step), rowKey="id"
        )
    assert rig.bodies() == ONCE_EACH


def test_the_parts_of_a_work_are_other_rows(rig):
    for step in (0, 1):
        rig.write(table(body=["same"]), writer=job_writer("all", 0, brief=False, step=step))
    assert rig.bodies() == {b"same": 2}


def test_a_whole_job_leaves_one_record_and_runs_again_without_a_row_twice(rig, monkeypatch):
    monkeypatch.setattr(tasks, "cluster", lambda name_servers, connect: rig.cluster)

    def run(*parts):
        marks = []
        for part, rows in enumerate(parts):
            writer = job_writer("night", part, brief=False)
            marks.append(rig.write(table(body=rows), writer=writer, part=part)[1])
        tasks.end_job(rig.options, job_writer("night", 0, brief=False), marks)

    def known(prefix):
        with closing(rig.cluster.sending(rig.options, "the test", may_be_over=True)) as asking:
            return [(view.scope, view.finished_epoch) for view in asking.known("orders", prefix).scopes]

    run(ROWS[:100], ROWS[100:200], ROWS[200:])
    record = job_writer("night", 2, brief=False).prefix("orders").replace("/2/", "/*/")
    assert known("night/") == known(record) == [(f"{record}broker-a:4", 0)], "nothing is left of the partitions"
    run(ROWS[:100], ROWS[100:200], ROWS[200:])
    assert rig.bodies() == ONCE_EACH
    with pytest.raises(StaleEpochError, match="with other rows than the 299 of now"):
        run(ROWS[:100], ROWS[100:200], ROWS[201:])
    assert rig.bodies() == ONCE_EACH


# --- pace -------------------------------------------------------------------------------------------------------------


class Hourglass:
    """A clock that a consumer of rows moves, and that sleeping moves."""

    def __init__(self):
        self.ms = 0

    def now_ms(self):
        return self.ms

    def sleep_ms(self, duration_ms):
        self.ms += duration_ms


@pytest.mark.parametrize(("rate", "took_ms"), [(100, 10), (1_000, 0), (0.5, 5)])
def test_rows_come_at_their_pace_also_behind_the_last_one(rate, took_ms):
    clock, count, left_at = Hourglass(), 0, []
    for piece in paced([table(body=ROWS[:7]), table(body=ROWS[:50])], rate, clock):
        left_at += [clock.ms] * piece.num_rows
        count += piece.num_rows
        clock.ms += took_ms
    assert count == 57
    seconds = 57 / rate
    assert seconds <= clock.ms / 1_000 <= 1.1 * seconds
    for window in range(57):  # in no second more than the rate, and what one burst has on top
        inside = [at for at in left_at if left_at[window] <= at < left_at[window] + 1_000]
        assert len(inside) <= rate + max(1, rate / 10)


def test_who_was_slow_does_not_make_up_for_it():
    clock, left_at = Hourglass(), []
    for number, _ in enumerate(paced([table(body=ROWS[:20])], 10, clock)):
        left_at.append(clock.ms)
        clock.ms += 60_000 if number == 9 else 0
    assert [later - earlier for earlier, later in pairwise(left_at[10:])] == [100] * 9


# --- times ------------------------------------------------------------------------------------------------------------


def test_rows_that_wait_are_stored_once_too(rig):
    now_ms = int(rig.broker.now.timestamp() * 1000)
    due = pa.array([1000 * (now_ms + 10_000 + number) for number in range(300)], pa.timestamp("us", tz="UTC"))
    delays = pa.array([None if number % 2 else 5 for number in range(300)], pa.int32())
    due = pa.array([None if number % 2 == 0 else value for number, value in enumerate(due.to_pylist())], due.type)
    for _ in range(2):
        rig.write(table(body=ROWS, deliverTimestamp=due, delaySeconds=delays), writer=stream_writer(QUERY, 3))
    rig.write(table(body=["level"], delayLevel=pa.array([2], pa.int32())), writer=stream_writer(QUERY, 4))
    rig.write(table(body=["level"], delayLevel=pa.array([2], pa.int32())), writer=stream_writer(QUERY, 4))
    assert not rig.bodies()
    rig.broker.advance(timedelta(seconds=20))
    assert rig.bodies() == ONCE_EACH + Counter([b"level"])


# --- brokers that are away --------------------------------------------------------------------------------------------


def test_a_cluster_that_is_away_is_named(rig):
    with EmbeddedBroker.sync() as broker:
        address = broker.address
        other = type(rig)(broker, "orders")
    with pytest.raises(SendFailedError, match=rf"partition 0 to topic 'orders' failed.*{address}"):
        other.attempt([table(body=ROWS)], {"body": 0}, stream_writer(QUERY, 3), 0, rig.options_for(address))
    other.cluster.close()


def test_a_topic_that_is_not_there_is_named(rig):
    with EmbeddedBroker.sync(settings={"autoCreateTopicEnable": "false"}) as broker:
        other = type(rig)(broker, "no-such-topic")
        with pytest.raises(ClientError, match="no-such-topic"):
            other.write(table(body=["x"]), writer=stream_writer(QUERY, 3), retryTimeoutMs=100)
        other.cluster.close()


def test_a_cluster_that_goes_away_in_the_middle_is_named(rig):
    def until_it_is_gone():
        yield table(body=ROWS[:100])
        rig.broker.close()
        yield table(body=ROWS[100:])

    address = rig.broker.address
    with pytest.raises(
        SendFailedError,
        match=rf"writing partition 0 to topic 'orders' failed, \d+ attempts in .*{address.split(':')[0]}",
    ):
        rig.attempt(until_it_is_gone(), {"body": 0}, stream_writer(QUERY, 3), 0, rig.options_for(address))
    rig.broker.start()
    rig.write(table(body=ROWS), writer=stream_writer(QUERY, 3))  # the repeat of the task
    assert rig.bodies() == ONCE_EACH


def test_rows_that_wait_need_no_dedup_to_go_together(rig):
    """One request holds them all, each with a time of its own."""
    now_ms = int(rig.broker.now.timestamp() * 1000)
    due = pa.array([1000 * (now_ms + 10_000 + number) for number in range(300)], pa.timestamp("us", tz="UTC"))
    with mock.patch.object(WaveConnection, "send_one", autospec=True, side_effect=WaveConnection.send_one) as sends:
        rig.write(table(body=ROWS, deliverTimestamp=due), writer=None, dedup="none")
    assert sends.call_count == 1
    assert not rig.bodies()
    rig.broker.advance(timedelta(seconds=20))
    assert rig.bodies() == ONCE_EACH


def test_a_connection_that_breaks_under_a_request_costs_a_repeat_and_no_row(rig):
    """The first attempt is stored and its answer lost: the repeat is recognised."""
    with mock.patch.object(WaveConnection, "receive", side_effect=ConnectionLostError("cut")):
        rig.write(table(body=ROWS[:150]), table(body=ROWS[150:]), writer=stream_writer(QUERY, 3))
    assert rig.bodies() == ONCE_EACH


def exchanged(rig, monkeypatch, change=lambda number, answer: answer):
    """First attempts come to nothing; when the client began its requests, and when they were answered."""
    noted, network = [], rig.cluster._client.network
    exchange = network.exchange

    async def noting(address, command, timeout_ms):
        if command.code != RequestCode.SEND_BATCH_MESSAGE:
            return await exchange(address, command, timeout_ms)
        number = sum(what == "begun" for what, _ in noted)
        noted.append(("begun", number))
        answer = change(number, await exchange(address, command, timeout_ms))
        noted.append(("answered", number))
        return answer

    monkeypatch.setattr(WaveConnection, "receive", mock.Mock(side_effect=ConnectionLostError("cut")))
    monkeypatch.setattr(network, "exchange", noting)
    return noted


@pytest.mark.parametrize(("dedup", "requests"), [("on", 2), ("none", 1)])
def test_what_is_stored_and_not_flushed_is_repeated_where_the_repeat_is_recognised(rig, monkeypatch, dedup, requests):
    def late(number, answer):
        if number == 0:
            answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
        return answer

    noted = exchanged(rig, monkeypatch, late)
    rig.write(table(body=ROWS), writer=stream_writer(QUERY, 3) if dedup == "on" else None, dedup=dedup)
    assert len(noted) == 2 * requests
    if dedup == "on":
        assert rig.bodies() == ONCE_EACH


def test_rows_that_keep_an_order_have_one_request_under_way(rig, monkeypatch):
    noted = exchanged(rig, monkeypatch)
    rig.write(table(body=ROWS[:20], queueId=[1] * 20), writer=stream_writer(QUERY, 3), batchBytes=1)
    assert noted == [(what, number) for number in range(20) for what in ("begun", "answered")]


def test_what_may_have_been_stored_once_stays_in_doubt_to_the_end(rig):
    errors = iter([ConnectionLostError("cut")])

    async def work():
        raise next(errors, None) or remote_error(ResponseCode.SYSTEM_BUSY, "busy", "a:1", "sending")

    asking = rig.cluster.sending(rig.options_for(rig.broker.address), "part", may_be_over=False)
    with closing(asking), pytest.raises(SendFailedError) as failed:
        rig.cluster.run(lambda client: asking._patiently("orders", work))
    assert failed.value.maybe_stored


def test_requests_beyond_what_may_be_under_way_wait(rig, monkeypatch):
    monkeypatch.setattr(sending, "SPARK_IN_FLIGHT_BYTES", 2_000)
    rig.write(table(body=ROWS), writer=stream_writer(QUERY, 3), batchBytes=500)
    assert rig.bodies() == ONCE_EACH


def test_a_due_time_that_the_broker_refuses_is_named(rig):
    """The whole request is refused, and nothing of it is stored."""
    with EmbeddedBroker.sync(settings={"timerMaxDelaySec": "60"}) as broker:
        with broker.connect() as client:
            client.admin.create_topic("orders", queues_count=1)
        other = type(rig)(broker, "orders")
        now_ms = int(broker.now.timestamp() * 1000)
        due = pa.array([(now_ms + 3_600_000) * 1000] * 3, pa.timestamp("us", tz="UTC"))
        with pytest.raises(ClientError, match=r"sending rows 0 and following of partition 0 to topic 'orders'"):
            other.write(table(body=ROWS[:3], deliverTimestamp=due), writer=stream_writer(QUERY, 3))
        broker.advance(timedelta(hours=2))
        assert not other.bodies()
        other.cluster.close()
