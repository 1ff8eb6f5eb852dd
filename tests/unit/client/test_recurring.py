"""Recurring messages through the client: which broker keeps a name, how it is found again, and what RocketMQ's broker lacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from scripted_cluster import CUT, NAME_SERVER, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client.message import SendStatus
from orbitmq.client.recurring import chosen_broker
from orbitmq.clock import ManualClock
from orbitmq.errors import ClientError, ConfigurationError, ConnectionLostError, NotFoundError, RemoteError
from orbitmq.protocol.remoting import recurring_bodies as wire
from orbitmq.protocol.remoting.bodies import BrokerData, ClusterInfo
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response

Run = Callable[[Callable[[], Awaitable[None]]], None]
MINUTE = timedelta(minutes=1)


class Keeper:
    """The recurring messages of one broker, behind our requests."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.kept: dict[str, wire.RecurringDefinition] = {}
        self.generations: dict[str, int] = {}
        self.code: int = ResponseCode.SUCCESS
        """Of answers to changes."""
        for code, answer in (
            (RequestCode.PUT_RECURRING, self.put),
            (RequestCode.GET_RECURRING, self.get),
            (RequestCode.SET_RECURRING_STATE, self.change),
            (RequestCode.DELETE_RECURRING, self.delete),
        ):
            broker.script(code, *[answer] * 400)

    def put(self, command: Command) -> Command:
        asked = wire.RecurringDefinition.decode(command.body)
        outcome = wire.RecurringOutcome.REPLACED if asked.name in self.kept else wire.RecurringOutcome.CREATED
        self.kept[asked.name] = asked
        return self.answer(command, wire.RecurringAnswer(outcome=outcome, recurring=self.view(asked)))

    def get(self, command: Command) -> Command:
        query = wire.RecurringQuery.decode(command.body)
        if query.name is not None:
            found = [self.kept[query.name]] if query.name in self.kept else []
            return self.answer(command, wire.RecurringPage([self.view(each) for each in found], runs=[(5, 6)]))
        names = sorted(name for name in self.kept if query.cursor is None or name > query.cursor)
        page = wire.RecurringPage([self.view(self.kept[name]) for name in names[:2]])
        page.cursor = names[1] if len(names) > 2 else None
        return self.answer(command, page)

    def change(self, command: Command) -> Command:
        asked = wire.RecurringChangeBody.decode(command.body)
        outcome = wire.RecurringOutcome.PAUSED if asked.paused else wire.RecurringOutcome.RESUMED
        return self.answer(command, wire.RecurringAnswer(outcome=outcome, recurring=self.view(self.kept[asked.name])))

    def delete(self, command: Command) -> Command:
        del self.kept[wire.RecurringChangeBody.decode(command.body).name]
        return self.answer(command, wire.RecurringAnswer(wire.RecurringOutcome.DELETED))

    def view(self, asked: wire.RecurringDefinition) -> wire.RecurringView:
        return wire.RecurringView(definition=asked, generation=self.generations.get(asked.name, 0), next_ms=7)

    def answer(self, command: Command, body: wire.RecurringPage | wire.RecurringAnswer) -> Command:
        code = ResponseCode.SUCCESS if command.code == RequestCode.GET_RECURRING else self.code
        return response(command, code, fields={}, body=body.encode())


def as_rocketmq(broker: Broker) -> None:
    for code in (RequestCode.PUT_RECURRING, RequestCode.GET_RECURRING):
        broker.script(code, *[int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)] * 20)


def brokers_of(cluster: Cluster, brokers: dict[str, Broker] | None = None) -> None:
    """Let the name server tell them: all, or these."""
    brokers = cluster.brokers if brokers is None else brokers
    info = ClusterInfo(
        broker_addr_table={
            name: BrokerData(broker_name=name, cluster="c", broker_addrs={0: broker.address})
            for name, broker in brokers.items()
        },
        cluster_addr_table={"c": list(brokers)},
    )
    cluster.name_server.script(
        RequestCode.GET_BROKER_CLUSTER_INFO,
        *[lambda command: response(command, ResponseCode.SUCCESS, fields={}, body=info.encode())] * 400,
    )


@pytest.fixture
def three(cluster: Cluster) -> dict[str, Keeper]:
    for name in ("b-b", "b-c"):
        cluster.add_broker(name)
    cluster.add_topic("T", queues=4)
    brokers_of(cluster)
    return {name: Keeper(broker) for name, broker in cluster.brokers.items()}


def client(cluster: Cluster) -> Client:
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial)


def test_a_name_has_its_broker_and_is_found_again(run: Run, cluster: Cluster, three: dict[str, Keeper]) -> None:
    names = [f"n{number}" for number in range(24)]

    async def test() -> None:
        async with client(cluster) as mq:
            for name in names:
                change = await mq.recurring.put(name, "T", b"x", every=MINUTE)
                assert change.recurring is not None
                assert change.recurring.broker_name == chosen_broker(name, three)
                assert (await mq.recurring.put(name, "T", b"y", every=MINUTE)).outcome is wire.RecurringOutcome.REPLACED
            assert (await mq.recurring.pause("n5")).outcome is wire.RecurringOutcome.PAUSED
            assert (await mq.recurring.resume("n5")).outcome is wire.RecurringOutcome.RESUMED
            listed = [each.name async for each in mq.recurring.list()]
            assert sorted(listed) == sorted(names)
            assert [(each.planned_ms, each.at_ms) for each in await mq.recurring.next_runs("n5", 1)] == [(5, 6)]
            for name in names:
                await mq.recurring.delete(name)
            assert await mq.recurring.get("n5") is None
            with pytest.raises(NotFoundError, match="no recurring message 'n5'"):
                await mq.recurring.pause("n5")

    run(test)
    assert all(len(keeper.broker.requests(RequestCode.PUT_RECURRING)) > 6 for keeper in three.values()), "spread"


def test_a_name_stays_where_it_is_when_brokers_are_added(run: Run, cluster: Cluster, three: dict[str, Keeper]) -> None:
    name = "n0"
    [other] = [keeper for keeper in three.values() if keeper.broker.name != chosen_broker(name, three)][:1]
    other.kept[name] = wire.RecurringDefinition(name=name, topic="T")

    async def test() -> None:
        async with client(cluster) as mq:
            change = await mq.recurring.put(name, "T", b"x", every=MINUTE)
            assert change.recurring is not None
            assert change.recurring.broker_name == other.broker.name

    run(test)
    assert sum(name in keeper.kept for keeper in three.values()) == 1


def test_the_choice_moves_few_names_when_a_broker_comes() -> None:
    names = [f"n{number}" for number in range(900)]
    before = {name: chosen_broker(name, ["a", "b"]) for name in names}
    after = {name: chosen_broker(name, ["c", "b", "a"]) for name in names}
    moved = [name for name in names if before[name] != after[name]]
    assert all(after[name] == "c" for name in moved)
    assert 200 < len(moved) < 400


def test_nothing_is_created_while_a_broker_leaves_open_whether_it_has_the_name(
    run: Run, cluster: Cluster, three: dict[str, Keeper]
) -> None:
    silent = three["b-b"].broker
    silent.forget_script(RequestCode.GET_RECURRING)
    silent.script(RequestCode.GET_RECURRING, *[CUT] * 200)
    three["b-c"].kept["there"] = wire.RecurringDefinition(name="there", topic="T")

    async def test() -> None:
        async with client(cluster) as mq:
            with pytest.raises(ConnectionLostError):
                await mq.recurring.put("new", "T", b"x", every=MINUTE)
            with pytest.raises(ConnectionLostError):
                await mq.recurring.get("new")
            assert (await mq.recurring.put("there", "T", b"x", every=MINUTE)).recurring is not None
            assert await mq.recurring.get("there") is not None

    run(test)
    assert not any("new" in keeper.kept for keeper in three.values())


def twins(three: dict[str, Keeper]) -> None:
    """A message that `b-a` and `b-c` keep, the one of `b-c` defined later."""
    for generation, name in enumerate(("b-a", "b-c"), 1):
        three[name].kept["n"] = wire.RecurringDefinition(name="n", topic="T")
        three[name].generations["n"] = generation


def test_twins_are_shown_and_merged(run: Run, cluster: Cluster, three: dict[str, Keeper]) -> None:
    twins(three)
    three["b-b"].kept["alone"] = wire.RecurringDefinition(name="alone", topic="T")

    async def test() -> None:
        async with client(cluster) as mq:
            listed = [(each.name, each.broker_name, each.twins) async for each in mq.recurring.list()]
            assert listed == [("n", "b-a", ("b-c",)), ("alone", "b-b", ()), ("n", "b-c", ("b-a",))]
            found = await mq.recurring.get("n")
            assert found is not None
            assert found.twins == ("b-c",)
            with pytest.raises(ClientError, match="several brokers: b-a, b-c") as refused:
                await mq.recurring.put("n", "T", b"x", every=MINUTE)
            assert "orbitmq recurring merge n" in str(refused.value)
            with pytest.raises(NotFoundError, match="broker 'b-b' keeps no recurring message 'n'"):
                await mq.recurring.merge("n", keep="b-b")
            assert (await mq.recurring.merge("n")).broker_name == "b-c"
            assert (await mq.recurring.merge("n")).broker_name == "b-c", "one stays as it is"
            with pytest.raises(NotFoundError):
                await mq.recurring.merge("nobody")

    run(test)
    assert ["n" in three[name].kept for name in ("b-a", "b-b", "b-c")] == [False, False, True]


@pytest.mark.parametrize("status", SendStatus)
def test_a_change_that_is_stored_counts_and_tells_how_far(
    status: SendStatus, run: Run, cluster: Cluster, three: dict[str, Keeper]
) -> None:
    for keeper in three.values():
        keeper.code = status.value

    async def test() -> None:
        async with client(cluster) as mq:
            put = await mq.recurring.put("a", "T", b"x", every=MINUTE)
            assert (put.outcome, put.send_status) == (wire.RecurringOutcome.CREATED, status)
            assert (await mq.recurring.pause("a")).send_status is status

    run(test)


def test_the_broker_whose_twin_stays_may_be_named(run: Run, cluster: Cluster, three: dict[str, Keeper]) -> None:
    twins(three)

    async def test() -> None:
        async with client(cluster) as mq:
            assert (await mq.recurring.merge("n", keep="b-a")).broker_name == "b-a"

    run(test)
    assert "n" not in three["b-c"].kept


def test_pausing_and_deleting_mean_all_twins(run: Run, cluster: Cluster, three: dict[str, Keeper]) -> None:
    twins(three)

    async def test() -> None:
        async with client(cluster) as mq:
            assert (await mq.recurring.pause("n")).outcome is wire.RecurringOutcome.PAUSED
            assert (await mq.recurring.delete("n")).outcome is wire.RecurringOutcome.DELETED

    run(test)
    for name in ("b-a", "b-c"):
        assert len(three[name].broker.requests(RequestCode.SET_RECURRING_STATE)) == 1
        assert not three[name].kept


def test_a_definition_is_not_made_elsewhere_while_its_broker_is_away(
    run: Run, cluster: Cluster, three: dict[str, Keeper]
) -> None:
    name = "n0"
    home = chosen_broker(name, three)
    staying = {kept: broker for kept, broker in cluster.brokers.items() if kept != home}

    async def test() -> None:
        async with client(cluster) as mq:
            await mq.recurring.put(name, "T", b"x", every=MINUTE)
            cluster.name_server.forget_script(RequestCode.GET_BROKER_CLUSTER_INFO)
            brokers_of(cluster, staying)  # it stopped, and the name server forgot it
            for call in (
                lambda: mq.recurring.put(name, "T", b"x", every=MINUTE),
                lambda: mq.recurring.put("another", "T", b"x", every=MINUTE),
                lambda: mq.recurring.get(name),
                lambda: mq.recurring.next_runs(name),
                lambda: mq.recurring.pause(name),
                lambda: mq.recurring.resume(name),
                lambda: mq.recurring.delete(name),
                lambda: mq.recurring.merge(name),
            ):
                with pytest.raises(
                    ClientError, match=f"broker {home}, which keeps recurring messages, is not registered"
                ) as no:
                    await call()
                assert f"orbitmq nameserver kv delete ORBITMQ_RECURRING_BROKERS {home}" in str(no.value)
            assert [each async for each in mq.recurring.list()] == []
            assert await mq.recurring.brokers_away() == [home]
            cluster.name_server.values["ORBITMQ_RECURRING_BROKERS"].clear()  # gone for good, somebody says
            change = await mq.recurring.put(name, "T", b"x", every=MINUTE)
            assert change.recurring is not None
            assert change.recurring.broker_name == chosen_broker(name, staying)

    run(test)


def test_a_keeper_is_remembered_once(run: Run, cluster: Cluster, three: dict[str, Keeper]) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            for _ in range(3):
                await mq.recurring.put("n", "T", b"x", every=MINUTE)

    run(test)
    assert len(cluster.name_server.requests(RequestCode.PUT_KV_CONFIG)) == 1
    assert cluster.name_server.values == {"ORBITMQ_RECURRING_BROKERS": {chosen_broker("n", three): "1"}}


def test_a_keeper_without_the_topic_is_told(run: Run, cluster: Cluster, three: dict[str, Keeper]) -> None:
    cluster.add_broker("b-z")
    cluster.name_server.forget_script(RequestCode.GET_BROKER_CLUSTER_INFO)
    brokers_of(cluster)
    Keeper(cluster.brokers["b-z"]).kept["n"] = wire.RecurringDefinition(name="n", topic="Old")

    async def test() -> None:
        async with client(cluster) as mq:
            with pytest.raises(ConfigurationError, match="kept by broker b-z, which does not have topic 'T'"):
                await mq.recurring.put("n", "T", b"x", every=MINUTE)

    run(test)


def test_rocketmqs_broker_is_named_and_passed_over(run: Run, cluster: Cluster) -> None:
    other = cluster.add_broker("b-b")
    cluster.add_topic("T", queues=4)
    brokers_of(cluster)
    ours = Keeper(cluster.brokers["b-a"])
    as_rocketmq(other)

    async def test() -> None:
        async with client(cluster) as mq:
            for number in range(6):
                await mq.recurring.put(f"n{number}", "T", b"x", every=MINUTE)
            assert len([each async for each in mq.recurring.list()]) == 6

    run(test)
    assert len(ours.kept) == 6


def test_rocketmqs_brokers_alone_have_none(run: Run, cluster: Cluster) -> None:
    cluster.add_topic("T", queues=4)
    brokers_of(cluster)
    as_rocketmq(cluster.brokers["b-a"])

    async def test() -> None:
        async with client(cluster) as mq:
            for call in (
                mq.recurring.put("n", "T", b"x", every=MINUTE),
                mq.recurring.get("n"),
                mq.recurring.delete("n"),
                anext(mq.recurring.list()),
            ):
                with pytest.raises(RemoteError, match="broker b-a has no recurring messages") as refused:
                    await call
                assert "RocketMQ" in (refused.value.remedy or "")

    run(test)
