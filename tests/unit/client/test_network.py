"""Connections by address, name servers in turn, routes and their fall-backs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from scripted_cluster import CUT, NAME_SERVER, SILENCE, Cluster

from orbitmq.client._async.connecting.name_servers import NameServers
from orbitmq.client._async.connecting.network import Network
from orbitmq.client._async.connecting.routes import Routes
from orbitmq.client._async.connecting.transport import Channel, OnLost, OnRequest
from orbitmq.client.addresses import NameServerChoice
from orbitmq.errors import ConnectionLostError, RemoteError, RouteNotFoundError
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response

Run = Callable[[Callable[[], object]], None]
CODE = RequestCode.GET_MAX_OFFSET
FIELDS = {"topic": "T", "queueId": "0"}


def network(cluster: Cluster, connected: list[str] | None = None) -> Network:
    seen: list[str] = [] if connected is None else connected
    return Network(cluster.dial, 3000, lambda channel, command: None, seen.append)


def routes(cluster: Cluster, changed: list[str], *servers: str) -> Routes:
    names = NameServers(network(cluster), NameServerChoice(servers or (NAME_SERVER,)), 3000)
    return Routes(names, changed.append)


def test_one_connection_serves_all_callers(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        connected: list[str] = []
        net = network(cluster, connected)
        address = cluster.brokers["b-a"].address
        await asyncio.gather(*(net.invoke(address, CODE, dict(FIELDS), timeout_ms=1000) for _ in range(5)))
        assert cluster.dials == [address]
        assert connected == [address]
        assert net.addresses == (address,)

    run(test)


def test_a_lost_connection_is_dialled_again(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        connected: list[str] = []
        net = network(cluster, connected)
        broker = cluster.brokers["b-a"]
        await net.invoke(broker.address, CODE, dict(FIELDS), timeout_ms=1000)
        broker.stop()
        await asyncio.sleep(0.1)
        with pytest.raises(ConnectionLostError):
            await net.invoke(broker.address, CODE, dict(FIELDS), timeout_ms=1000)
        broker.up = True
        assert (await net.invoke(broker.address, CODE, dict(FIELDS), timeout_ms=1000)).code == 0
        assert connected == [broker.address] * 2

    run(test)


def test_an_error_code_becomes_an_error_that_names_it(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        broker = cluster.brokers["b-a"]
        broker.script(CODE, ResponseCode.NO_PERMISSION)
        with pytest.raises(RemoteError, match=r"NO_PERMISSION.*asking") as caught:
            await network(cluster).request(broker.address, CODE, dict(FIELDS), timeout_ms=1000, doing="asking")
        assert caught.value.code == ResponseCode.NO_PERMISSION
        assert caught.value.address == broker.address
        assert caught.value.remedy

    run(test)


def test_go_away_is_followed_by_one_retry_on_a_new_connection(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        broker = cluster.brokers["b-a"]
        net = network(cluster)
        broker.script(CODE, ResponseCode.GO_AWAY)
        assert (await net.invoke(broker.address, CODE, dict(FIELDS), timeout_ms=1000)).code == 0
        assert len(cluster.dials) == 2
        broker.script(CODE, ResponseCode.GO_AWAY, ResponseCode.GO_AWAY)
        assert (await net.invoke(broker.address, CODE, dict(FIELDS), timeout_ms=1000)).code == ResponseCode.GO_AWAY

    run(test)


def test_who_waits_for_a_connection_waits_within_its_own_time(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        dials: list[str] = []

        async def dial(address: str, timeout_ms: int, on_request: OnRequest, on_lost: OnLost) -> Channel:
            dials.append(address)
            await asyncio.sleep(timeout_ms / 1000)
            raise ConnectionLostError(f"no connection to {address} within {timeout_ms} ms", request_sent=False)

        loop = asyncio.get_running_loop()
        net = Network(dial, 3_000, lambda channel, command: None, lambda address: None)
        began = loop.time()

        async def call(timeout_ms: int) -> float:
            with pytest.raises(ConnectionLostError, match="within") as caught:
                await net.invoke("gone:1", CODE, dict(FIELDS), timeout_ms=timeout_ms)
            assert not caught.value.request_sent
            return loop.time() - began

        ended = await asyncio.gather(*(call(limit_ms) for limit_ms in (500, 1_000, 60_000)))
        assert ended == pytest.approx([0.5, 1, 3])
        assert dials == ["gone:1"]
        waiting = asyncio.ensure_future(net.connect("gone:1", 60_000))
        await asyncio.sleep(0.1)
        await net.close()
        with pytest.raises(ConnectionLostError, match="closed"):
            await waiting

    run(test)


def test_a_call_is_made_again_when_its_server_goes_away(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        net = network(cluster)
        broker = cluster.brokers["b-a"]

        def die(command: Command) -> None:
            broker.stop()
            asyncio.get_running_loop().call_later(2, setattr, broker, "up", True)

        await net.insist(broker.address, CODE, dict(FIELDS), timeout_ms=3_000, doing="asking")
        broker.script(CODE, die)
        assert (await net.insist(broker.address, CODE, dict(FIELDS), timeout_ms=3_000, doing="asking")).code == 0
        broker.stop()
        began = asyncio.get_running_loop().time()
        with pytest.raises(ConnectionLostError):
            await net.insist(broker.address, CODE, dict(FIELDS), timeout_ms=3_000, doing="asking")
        assert 2 <= asyncio.get_running_loop().time() - began < 3

    run(test)


def test_a_call_that_was_made_in_vain_says_what_was_asked_how_often_and_what_may_have_become_of_it(
    run: Run, cluster: Cluster
) -> None:
    async def test() -> None:
        net = network(cluster)
        broker = cluster.brokers["b-a"]
        await net.insist(broker.address, CODE, dict(FIELDS), timeout_ms=3_000, doing="recalling message 7")
        broker.script(CODE, lambda command: broker.stop())
        text = r"recalling message 7: no connection to b-a:10911: refused; \d+ attempts in \d+ ms"
        with pytest.raises(ConnectionLostError, match=text + "; it may have been carried out") as told:
            await net.insist(broker.address, CODE, dict(FIELDS), timeout_ms=3_000, doing="recalling message 7")
        assert told.value.request_sent
        with pytest.raises(ConnectionLostError, match=text + "$") as told:
            await net.insist(broker.address, CODE, dict(FIELDS), timeout_ms=3_000, doing="recalling message 7")
        assert not told.value.request_sent

    run(test)


def test_a_server_that_was_never_there_is_asked_once(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        with pytest.raises(ConnectionLostError):
            await network(cluster).insist("gone:1", CODE, dict(FIELDS), timeout_ms=3_000, doing="asking")
        assert cluster.dials == ["gone:1"]

    run(test)


def test_what_may_be_done_only_once_is_not_asked_for_twice(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        broker = cluster.brokers["b-a"]
        broker.script(RequestCode.PROMOTE_SLAVE, CUT)
        with pytest.raises(ConnectionLostError):
            await network(cluster).insist(broker.address, RequestCode.PROMOTE_SLAVE, timeout_ms=3_000, doing="asking")
        assert len(broker.requests(RequestCode.PROMOTE_SLAVE)) == 1

    run(test)


def test_a_closed_network_refuses_calls(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        net = network(cluster)
        await net.close()
        with pytest.raises(ConnectionLostError, match="closed"):
            await net.invoke(NAME_SERVER, CODE, timeout_ms=1000)

    run(test)


def test_a_connection_in_use_is_not_forgotten(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        net = network(cluster)
        broker = cluster.brokers["b-a"]
        broker.script(CODE, SILENCE)
        call = asyncio.ensure_future(net.invoke(broker.address, CODE, dict(FIELDS), timeout_ms=900))
        await asyncio.sleep(0.1)
        net.forget(broker.address, "test")
        assert net.addresses == (broker.address,)
        await asyncio.wait([call])
        call.exception()
        net.forget(broker.address, "test")
        assert not net.addresses

    run(test)


def test_the_next_name_server_is_asked_only_when_one_fails(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        found = routes(cluster, [], "gone:1", NAME_SERVER)
        for _ in range(3):
            assert await found.refresh("T") is not None
        assert cluster.dials.count("gone:1") <= 1
        cluster.name_server.stop()
        with pytest.raises(ConnectionLostError, match="no name server answered") as caught:
            await found.refresh("T")
        assert "gone:1" in str(caught.value)
        assert NAME_SERVER in str(caught.value)

    run(test)


def test_a_question_whose_connection_broke_is_asked_once_more_over_a_new_one(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        found = routes(cluster, [])
        cluster.name_server.script(RequestCode.GET_ROUTEINFO_BY_TOPIC, CUT)
        assert await found.refresh("T") is not None
        assert cluster.dials == [NAME_SERVER] * 2
        cluster.name_server.script(RequestCode.GET_ROUTEINFO_BY_TOPIC, CUT, CUT)
        with pytest.raises(ConnectionLostError, match="no name server answered"):
            await found.refresh("T")

    run(test)


def test_a_change_is_not_repeated_when_its_connection_breaks(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        names = NameServers(network(cluster), NameServerChoice([NAME_SERVER]), 3000)
        cluster.name_server.script(RequestCode.PUT_KV_CONFIG, CUT)
        with pytest.raises(ConnectionLostError):
            await names.request_all(RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "k"}, doing="test")
        assert len(cluster.name_server.requests(RequestCode.PUT_KV_CONFIG)) == 1

    run(test)


def test_one_look_up_serves_all_who_wait_for_it(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        found = routes(cluster, [])
        await asyncio.gather(*(found.get("T") for _ in range(5)))
        assert len(cluster.name_server.log) == 1

    run(test)


def test_unknown_topics_fall_back_to_the_template_for_sending_only(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        found = routes(cluster, [])
        with pytest.raises(RouteNotFoundError, match="new"):
            await found.get("new")
        route = await found.for_sending("new", 4)
        assert len(route.publish_queues) == 4
        assert route.publish_queues[0].topic == "new"
        del cluster.topics["TBW102"]
        with pytest.raises(RouteNotFoundError, match="on demand"):
            await found.for_sending("newer", 4)

    run(test)


def test_who_consumes_never_gets_the_guess_that_sends_go_by(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        changed: list[str] = []
        found = routes(cluster, changed)
        guess = await found.for_sending("new", 4)
        assert found.known_for_sending("new") is guess
        assert found.master("b-a", "new") == "b-a:10911"
        assert found.known("new") is None
        assert found.topic_on("b-a") is None
        assert await found.find("new") is None
        with pytest.raises(RouteNotFoundError, match="know no topic 'new'"):
            await found.get("new")
        found.created("new")
        found.created("new")
        assert changed == ["new"], "those who wait for the topic ask again, once"
        cluster.add_topic("new", queues=8)
        real = await found.get("new")
        assert len(real.subscribe_queues) == 8
        assert found.known_for_sending("new") is real
        assert changed == ["new", "new"]
        found.created("new")
        assert len(changed) == 2

    run(test)


def test_a_guess_ends_with_the_refresh_that_finds_the_topic(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        changed: list[str] = []
        found = routes(cluster, changed)
        guess = await found.for_sending("new", 4)
        await found.refresh_all()
        assert found.known_for_sending("new") is guess
        cluster.add_topic("new", queues=8)
        await found.refresh_all()
        assert len(found.known("new").publish_queues) == 8
        assert changed == ["new"]

    run(test)


def test_a_refresh_reports_changes_and_keeps_what_it_cannot_learn(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        changed: list[str] = []
        found = routes(cluster, changed)
        await found.get("T")
        await found.refresh_all()
        assert changed == []
        cluster.add_broker("b-b")
        cluster.add_topic("T", queues=4)
        await found.refresh_all()
        assert changed == ["T"]
        assert found.addresses(masters_only=True) == {"b-a:10911", "b-b:10911"}
        del cluster.topics["T"]
        await found.refresh_all()
        cluster.name_server.stop()
        await found.refresh_all()
        assert len((await found.get("T")).publish_queues) == 8

    run(test)


def test_a_route_that_cannot_be_read_keeps_no_other_from_its_refresh(run: Run, cluster: Cluster) -> None:
    cluster.add_topic("U", queues=1)

    async def test() -> None:
        changed: list[str] = []
        found = routes(cluster, changed)
        await found.get("T")
        await found.get("U")
        cluster.add_topic("U", queues=2)
        cluster.name_server.script(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda command: response(command, ResponseCode.SUCCESS, body=b"[")
        )
        await found.refresh_all()
        assert changed == ["U"]

    run(test)


def test_a_route_without_writable_queues_says_so(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        cluster.add_topic("empty", queues=0)
        with pytest.raises(RouteNotFoundError, match="writable"):
            await routes(cluster, []).for_sending("empty", 4)

    run(test)
