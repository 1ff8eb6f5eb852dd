"""A key alone makes a send single, through a killed broker and by another process."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from urllib.request import urlopen

from server_process import ServedProcess, free_ports, until

import orbitmq.sync


def test_an_order_sent_again_by_another_program_after_a_crash_is_stored_once(
    serve: Callable[..., ServedProcess],
) -> None:
    ports = free_ports()
    server = serve(ports=ports)
    server.create_topic("orders", 4)
    address = f"127.0.0.1:{ports[0]}"
    with orbitmq.sync.connect(address) as mq:
        first = mq.send("orders", b"nails", once="order-42")
    server.kill()
    server = serve(ports=ports)
    with orbitmq.sync.connect(address) as mq:
        again = mq.send("orders", b"nails", once="order-42")
        other = mq.send("orders", b"nails", once="order-43")
        short = orbitmq.sync.OnceWithin("hello", window=1.0)
        mq.send("orders", b"hello", once=short)
    assert (again.queue, again.queue_offset, again.message_id) == (first.queue, first.queue_offset, first.message_id)
    assert (other.queue, other.queue_offset) != (first.queue, first.queue_offset)
    facts = server.runtime()
    assert (facts["orbitmqRepeatedSends"], facts["orbitmqOnceFullestOwner"].partition(" ")[2]) == ("1", "^orders")
    with urlopen(f"http://127.0.0.1:{server.http_port}/readyz") as ready:
        assert json.load(ready)["onceMemory"]["owner"] == "^orders"
    server.stop()


ORDERS = [f"order-{number}" for number in range(12)]


def test_a_repeat_waits_for_the_broker_that_knows_its_key(serve: Callable[..., ServedProcess]) -> None:
    """Another broker has the topic, and a program that is started meanwhile knows of both by the order configuration."""
    name_server = serve("names", command="nameserver", settings={"orderMessageEnable": "true"})
    address = f"127.0.0.1:{name_server.name_port}"

    def broker(name: str, ports: tuple[int, int] | None = None) -> ServedProcess:
        settings = {"brokerName": name}
        return serve(name, command="broker", options=("--namesrv", address), settings=settings, ports=ports)

    brokers = {name: broker(name) for name in ("broker-a", "broker-b")}
    for server in brokers.values():
        server.create_topic("orders", 4)
    patient = orbitmq.sync.ProducerOptions(send_timeout_ms=60_000)
    quick = orbitmq.sync.ClientOptions(route_refresh_ms=300)

    def connect() -> orbitmq.sync.Client:
        return orbitmq.sync.connect(address, options=quick, producer_options=patient)

    def sent_again(mq: orbitmq.sync.Client) -> list[tuple[str, int]]:
        receipts = [mq.send("orders", b"nails", once=key) for key in ORDERS]
        return [(receipt.queue.broker_name, receipt.queue_offset) for receipt in receipts]

    def owners(mq: orbitmq.sync.Client) -> set[str]:
        return {data.broker_name for data in mq.admin.topic_route("orders").queue_datas}

    with connect() as mq, ThreadPoolExecutor() as threads:
        until(lambda: owners(mq) == set(brokers))
        first = sent_again(mq)
        lost = brokers["broker-b"]
        ports = (lost.name_port, lost.port)
        assert {name for name, _ in first} == set(brokers)
        mq.admin.put_value("ORDER_TOPIC_CONFIG", "orders", "broker-a:4;broker-b:4")
        lost.kill()
        until(lambda: owners(mq) == {"broker-a"})
        with connect() as started_meanwhile:
            repeats = [threads.submit(sent_again, each) for each in (mq, started_meanwhile)]
            wait(repeats, timeout=3)
            assert [repeat.done() for repeat in repeats] == [False, False]
            broker("broker-b", ports)
            assert [repeat.result(60) for repeat in repeats] == [first, first]
        stored = sum(at.max_offset - at.min_offset for at in mq.admin.topic_stats("orders").values())
    assert stored == len(ORDERS)
