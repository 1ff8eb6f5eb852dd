"""What is popped and not acknowledged changes hands: orbitmq, then RocketMQ 5.3.3, then orbitmq again, in one directory.

The consumer speaks the wire itself. At each broker it pops messages one by one and together, acknowledges some at once and out of order,
some only at the next broker with the receipt of the one before, and some never. Each message is delivered once, and those that nobody
acknowledges in time once more.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rig.brokers import BrokerUnderTest, Kind, orbitmq_command
from rig.popping import GROUP, POP_SETTINGS, TOPIC, Consumer, consume, wait_stored
from rig.toolchain import BROKER_VERSION, java_build
from rig.wire import RUNTIME_INFO

pytestmark = pytest.mark.java


def test_what_is_popped_changes_hands(
    brokers: Callable[..., BrokerUnderTest], available: Callable[[Callable[[], object]], None], tmp_path: Path
) -> None:
    available(lambda: java_build(BROKER_VERSION))
    consumer, data = Consumer(), tmp_path / "data"
    ours = brokers(Kind.ORBITMQ, "ours", data=data, settings=POP_SETTINGS).start()
    with ours.wire() as wire:
        wire.create_topic(TOPIC, 1)
        wire.create_group(GROUP, 16)
        later, never, due_ms = consume(consumer, wire, "ours")
        wait_stored(wire)
    ours.kill()
    sets = [word for key, value in POP_SETTINGS.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([*orbitmq_command(), "store", "hand-over", data, *sets], check=True, capture_output=True)

    java = brokers(Kind.JAVA, "java", data=data, settings=POP_SETTINGS).start()
    with java.wire() as wire:
        for popped in later:
            consumer.ack(wire, popped)
        java_later, java_never, java_due_ms = consume(consumer, wire, "java")
        consumer.drain(wire, never)
        time.sleep(max(0.0, due_ms / 1000 + 5 - time.time()))
    java.stop()

    again = brokers(Kind.ORBITMQ, "again", data=data, settings=POP_SETTINGS).start()
    with again.wire() as wire:
        for popped in java_later:
            consumer.ack(wire, popped)
        consumer.drain(wire, java_never)
        time.sleep(max(0.0, java_due_ms / 1000 + 1 - time.time()))
        consumer.finish(wire)
        table = wire.call(RUNTIME_INFO, {})[1]
    again.stop()
    consumer.judge(never | java_never)
    assert b'"orbitmqPopRecordsUnread":"0"' in table
    assert b'"orbitmqPopInFlight":"0"' in table
