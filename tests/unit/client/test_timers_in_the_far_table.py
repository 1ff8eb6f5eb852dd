"""Timer messages that no broker has yet, because they are rows of the cluster's far table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
from scripted_cluster import NAME_SERVER, Broker, Cluster
from test_timer_room import DUE_MS, Wheel

from orbitmq.client._async.client import Client
from orbitmq.client.timers import TimerVerdict
from orbitmq.clock import ManualClock
from orbitmq.errors import ClientError
from orbitmq.protocol import far_table as table_wire
from orbitmq.protocol.far_table import RowStanding, RowVerdict, TableVerdict
from orbitmq.protocol.remoting import timer_bodies as wire
from orbitmq.protocol.remoting.bodies import BrokerData, ClusterInfo
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response

Run = Callable[[Callable[[], Awaitable[None]]], None]

TABLE_CODES = (RequestCode.FAR_TABLE_STATUS, RequestCode.FAR_TABLE_FIND, RequestCode.FAR_TABLE_RECALL)
RECALL = RequestCode.RECALL_TIMERS
STATUS = RequestCode.TIMER_STATUS


class TabledWheel(Wheel):
    """A broker of a cluster with a far table."""

    def _body(self, command: Command) -> wire.TimerAnswers | wire.TimerPage | wire.TimerCounts | wire.TimerMessage:
        if command.code in (RECALL, RequestCode.RESCHEDULE_TIMERS):
            change = wire.ChangeTimers.decode(command.body)
            if change.unless_table:
                change.selector.all = True
                command = Command(STATUS, body=change.encode())
        body = super()._body(command)
        body.has_table = True
        return body


class Table:
    """The owner's side: a list of rows."""

    def __init__(self, owner: Broker, wheel: Wheel) -> None:
        self.wheel = wheel
        self.rows: list[table_wire.TableRow] = []
        self.asked: list[RequestCode] = []
        self.finds: list[table_wire.FindRows] = []
        self.page_rows = 100
        self.refuses = ""
        self.is_full = False
        self.arrives: str | None = None
        """A row handed over that its broker stores after the table was asked."""
        for code in TABLE_CODES:
            owner.script(code, *[self.answer] * 100)

    def add(
        self, message_id: str, due_ms: int = DUE_MS, key: str = "", standing: RowStanding = RowStanding.PENDING
    ) -> None:
        row = table_wire.TableRow(standing, "T", message_id, due_ms, key)
        if standing is RowStanding.HANDED_OVER:
            row.brokers = ["b-a"]
        self.rows.append(row)

    def answer(self, command: Command) -> Command:
        self.asked.append(RequestCode(command.code))
        return response(command, ResponseCode.SUCCESS, fields={}, body=self._body(command).encode())

    def _body(self, command: Command) -> table_wire.TableAnswer:
        ok = TableVerdict.OK
        if command.code == RequestCode.FAR_TABLE_STATUS:
            return table_wire.TableStatus(ok, 1, table="t", rows=len(self.rows))
        if self.refuses:
            return table_wire.RowsFound(TableVerdict.TOO_MANY, 1, self.refuses)
        if command.code == RequestCode.FAR_TABLE_FIND:
            query = table_wire.FindRows.decode(command.body)
            self.finds.append(query)
            return self._found(query)
        request = table_wire.RecallRows.decode(command.body)
        told = []
        for row in self._meant(request.message_id, request.key):
            verdict = RowVerdict.RECALLED
            if row.standing is RowStanding.RECALLED:
                verdict = RowVerdict.ALREADY_RECALLED
            elif row.standing is RowStanding.HANDED_OVER:
                verdict = RowVerdict.HANDED_OVER
            elif self.is_full:
                verdict = RowVerdict.TOO_MANY
            else:
                row.standing = RowStanding.RECALLED
            told.append(table_wire.RecalledRow(verdict, row.message_id, row.due_ms, keys=row.keys))
        return table_wire.RowsRecalled(ok, 2, rows=told or [table_wire.RecalledRow(RowVerdict.NOT_FOUND, "")])

    def _meant(self, message_id: str | None, key: str | None) -> list[table_wire.TableRow]:
        return [
            row
            for row in self.rows
            if (message_id is None or row.message_id == message_id) and (key is None or key in row.keys.split())
        ]

    def _found(self, query: table_wire.FindRows) -> table_wire.RowsFound:
        rows = sorted(self._meant(query.message_id, query.key), key=lambda row: row.due_ms or 0)
        if query.is_waiting:
            rows = [row for row in rows if row.standing is RowStanding.PENDING]
        if self.arrives is not None:
            self.wheel.add(self.arrives, DUE_MS, "k")
        begin = int(query.cursor or 0)
        end = begin + min(query.limit, self.page_rows)
        return table_wire.RowsFound(
            TableVerdict.OK, 1, rows=rows[begin:end], cursor=str(end) if end < len(rows) else None
        )


class Rig(NamedTuple):
    cluster: Cluster
    wheel: Wheel
    table: Table

    def client(self) -> Client:
        return Client(NAME_SERVER, clock=ManualClock(), dial=self.cluster.dial)


def with_masters(cluster: Cluster) -> None:
    names = {
        name: BrokerData(broker_name=name, cluster="c", broker_addrs={0: broker.address})
        for name, broker in cluster.brokers.items()
    }
    info = ClusterInfo(broker_addr_table=names, cluster_addr_table={"c": list(names)})
    cluster.name_server.script(
        RequestCode.GET_BROKER_CLUSTER_INFO,
        *[lambda command: response(command, ResponseCode.SUCCESS, fields={}, body=info.encode())] * 20,
    )


@pytest.fixture
def rig(cluster: Cluster) -> Rig:
    with_masters(cluster)
    wheel = TabledWheel(cluster.brokers["b-a"])
    return Rig(cluster, wheel, Table(cluster.brokers["b-a"], wheel))


def test_where_there_is_no_far_table_nothing_further_is_asked(run: Run, cluster: Cluster) -> None:
    wheel = Wheel(cluster.brokers["b-a"])
    wheel.add("1", DUE_MS, "k")

    async def test() -> None:
        async with Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial) as mq:
            assert (await mq.timers.recall(topic="T", message_id="9")).verdict is TimerVerdict.NOT_FOUND
            assert (await mq.timers.recall(topic="T", key="k")).verdict is TimerVerdict.RECALLED
            assert (await mq.timers.status(topic="T", key="k")).verdict is TimerVerdict.NOT_FOUND
            assert [timer async for timer in mq.timers.list(topic="T")] == []

    run(test)
    assert wheel.asked == [RECALL, RECALL, STATUS, RequestCode.LIST_TIMERS, RequestCode.LIST_TIMERS]
    assert not [code for code in TABLE_CODES if cluster.brokers["b-a"].requests(code)]


def test_a_row_is_recalled_by_its_id_and_by_its_key(run: Run, rig: Rig) -> None:
    rig.table.add("1", DUE_MS, "k other")
    rig.table.add("2", DUE_MS + 5, "j")

    async def test() -> None:
        async with rig.client() as mq:
            outcome = await mq.timers.recall(topic="T", key="other")
            assert (outcome.verdict, outcome.changed_count) == (TimerVerdict.RECALLED, 1)
            assert outcome.timer is not None
            assert (outcome.timer.tier, outcome.timer.deliver_ms, outcome.timer.keys) == (
                "table",
                DUE_MS,
                ("k", "other"),
            )
            assert (await mq.timers.recall(topic="T", key="other")).verdict is TimerVerdict.ALREADY_RECALLED
            assert (await mq.timers.status(topic="T", message_id="1")).verdict is TimerVerdict.ALREADY_RECALLED
            assert (await mq.timers.status(topic="T", message_id="2")).verdict is TimerVerdict.PENDING
            outcome = await mq.timers.recall(topic="T", message_id="2")
            assert (outcome.verdict, outcome.changed_count) == (TimerVerdict.RECALLED, 1)
            nobody = await mq.timers.recall(topic="T", message_id="nobody")
            assert (nobody.verdict, nobody.changed_count) == (TimerVerdict.NOT_FOUND, 0)

    run(test)


def test_what_a_broker_knows_by_its_id_is_not_looked_for_in_the_table(run: Run, rig: Rig) -> None:
    rig.wheel.add("1", DUE_MS)

    async def test() -> None:
        async with rig.client() as mq:
            listed = [timer async for timer in mq.timers.list(topic="T")]
            rig.table.asked.clear()
            assert (await mq.timers.status(topic="T", message_id="1")).verdict is TimerVerdict.PENDING
            assert (await mq.timers.recall(listed[0])).verdict is TimerVerdict.RECALLED
            assert (await mq.timers.recall(listed[0])).verdict is TimerVerdict.NOT_FOUND

    run(test)
    assert rig.table.asked == []


def test_a_key_of_a_row_and_of_a_brokers_message_is_ambiguous(run: Run, rig: Rig) -> None:
    rig.wheel.add("near", DUE_MS, "k")
    rig.table.add("row", DUE_MS + 1, "k")

    async def test() -> None:
        async with rig.client() as mq:
            refused = await mq.timers.recall(topic="T", key="k")
            assert (refused.verdict, len(refused.matches), refused.changed_count) == (TimerVerdict.AMBIGUOUS, 2, 0)
            assert list(rig.wheel.pending) == ["near"]
            assert rig.table.rows[0].standing is RowStanding.PENDING
            both = await mq.timers.recall(topic="T", key="k", all=True)
            assert (both.verdict, both.changed_count) == (TimerVerdict.RECALLED, 2)
            assert {match.timer.message_id for match in both.matches if match.timer} == {"near", "row"}

    run(test)
    assert not rig.wheel.pending
    assert rig.table.rows[0].standing is RowStanding.RECALLED


def test_several_rows_of_a_key_are_recalled_together(run: Run, rig: Rig) -> None:
    for number in range(3):
        rig.table.add(str(number), DUE_MS + number, "k")
    rig.table.page_rows = 2

    async def test() -> None:
        async with rig.client() as mq:
            assert (await mq.timers.recall(topic="T", key="k")).verdict is TimerVerdict.AMBIGUOUS
            assert (await mq.timers.recall(topic="T", key="k", all=True)).changed_count == 3

    run(test)
    assert rig.table.asked.count(RequestCode.FAR_TABLE_RECALL) == 1


def test_a_row_that_was_handed_over_is_its_brokers(run: Run, rig: Rig) -> None:
    rig.table.add("late", DUE_MS, "k", RowStanding.HANDED_OVER)
    rig.table.arrives = "late"

    async def test() -> None:
        async with rig.client() as mq:
            outcome = await mq.timers.recall(topic="T", key="k")
            assert (outcome.verdict, outcome.changed_count) == (TimerVerdict.RECALLED, 1)
            assert outcome.timer is not None
            assert outcome.timer.tier == "near"

    run(test)


def test_a_row_that_its_broker_does_not_have_yet_is_too_late(run: Run, rig: Rig) -> None:
    clock = ManualClock()
    rig.table.add("under way", clock.now_ms() + 60_000, "k", RowStanding.HANDED_OVER)
    rig.table.add("long ago", clock.now_ms() - 60_000, "k", RowStanding.HANDED_OVER)

    async def test() -> None:
        async with Client(NAME_SERVER, clock=clock, dial=rig.cluster.dial) as mq:
            assert (await mq.timers.recall(topic="T", message_id="under way")).verdict is TimerVerdict.TOO_LATE
            assert (await mq.timers.status(topic="T", message_id="under way")).verdict is TimerVerdict.TOO_LATE
            assert (await mq.timers.status(topic="T", message_id="long ago")).verdict is TimerVerdict.NOT_FOUND

    run(test)


def test_a_row_is_not_rescheduled(run: Run, rig: Rig) -> None:
    rig.table.add("row", DUE_MS, "k")
    rig.wheel.add("near", DUE_MS, "k")

    async def test() -> None:
        async with rig.client() as mq:
            for named in ({"message_id": "row"}, {"key": "k", "all": True}):
                with pytest.raises(ClientError, match=r"due times stand.*recall it and send it again"):
                    await mq.timers.reschedule(topic="T", at=DUE_MS + 9, **named)  # type: ignore[arg-type]
            assert rig.wheel.pending["near"].deliver_ms == DUE_MS
            moved = await mq.timers.reschedule(topic="T", message_id="near", at=DUE_MS + 9)
            assert moved.verdict is TimerVerdict.RESCHEDULED

    run(test)


def test_lists_have_both_by_due_time_and_what_they_show_can_be_recalled(run: Run, rig: Rig) -> None:
    for number in range(5):
        rig.table.add(f"row{number}", DUE_MS + 10 * number)
        rig.wheel.add(f"near{number}", DUE_MS + 10 * number + 5)
    rig.wheel.add("row1", DUE_MS + 10)  # it came to a broker between two pages
    rig.table.page_rows = 2

    async def test() -> None:
        async with rig.client() as mq:
            found = [timer async for timer in mq.timers.list(topic="T", page_count=3, due_from=DUE_MS)]
            expected = [name for number in range(5) for name in (f"row{number}", f"near{number}")]
            assert [timer.message_id for timer in found] == expected
            assert {timer.tier for timer in found} == {"near", "table"}
            row = found[-2]
            assert (row.tier, row.queue.broker_name, row.recall_handle) == ("table", "", None)
            assert (await mq.timers.recall(row)).verdict is TimerVerdict.RECALLED
            assert (rig.table.finds[-1].from_ms, rig.table.finds[-1].until_ms) == (row.deliver_ms, row.deliver_ms + 1)
            assert (await mq.timers.counts(topic="T")).table == 5

    run(test)
    assert rig.table.finds[0].from_ms == DUE_MS


def test_content_of_a_row_is_in_its_file(run: Run, rig: Rig) -> None:
    rig.table.add("row", DUE_MS, "k")

    async def test() -> None:
        async with rig.client() as mq:
            with pytest.raises(ClientError, match="waits in the cluster's far table"):
                await mq.timers.get(topic="T", key="k")
            assert await mq.timers.get(topic="T", key="nobody") is None

    run(test)


def test_a_table_that_is_not_looked_through_is_an_error_with_a_way_out(run: Run, rig: Rig) -> None:
    rig.wheel.add("near", DUE_MS, "k")
    rig.table.refuses = "51000000 rows would have to be looked through"

    async def test() -> None:
        async with rig.client() as mq:
            with pytest.raises(ClientError, match=r"51000000 rows.*due="):
                await mq.timers.recall(topic="T", key="k", all=True)
            with pytest.raises(ClientError, match="not looked through"):
                await mq.far_table.recall("T", key="k")

    run(test)
    assert list(rig.wheel.pending) == ["near"]


def test_recalls_that_the_catalog_has_no_room_for_are_not_called_done(run: Run, rig: Rig) -> None:
    rig.table.add("row", DUE_MS)
    rig.table.is_full = True

    async def test() -> None:
        async with rig.client() as mq:
            with pytest.raises(ClientError, match="as many recalls as it can"):
                await mq.timers.recall(topic="T", message_id="row")

    run(test)


def test_several_brokers_and_the_table(run: Run, cluster: Cluster) -> None:
    wheels = TabledWheel(cluster.brokers["b-a"]), TabledWheel(cluster.add_broker("b-b"))
    cluster.add_topic("T", queues=4)
    with_masters(cluster)
    table = Table(cluster.brokers["b-a"], wheels[0])
    table.add("row", DUE_MS, "k")
    wheels[1].add("near", DUE_MS, "k")

    async def test() -> None:
        async with Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial) as mq:
            assert (await mq.timers.recall(topic="T", key="k")).verdict is TimerVerdict.AMBIGUOUS
            assert (await mq.timers.recall(topic="T", message_id="row")).changed_count == 1
            assert (await mq.timers.recall(topic="T", key="k")).changed_count == 1

    run(test)
    assert not wheels[1].pending
