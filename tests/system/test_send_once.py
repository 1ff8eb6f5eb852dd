"""A key alone makes a send single, through a killed broker and by another process."""

from __future__ import annotations

from collections.abc import Callable

from server_process import ServedProcess, free_ports

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
    server.stop()
