"""A server that has nothing to do wakes only for work that has a name, and costs next to nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from server_process import ServedProcess, pull_fields, send_fields

from orbitmq.protocol.remoting.commands import RequestCode
from orbitmq.protocol.remoting.frame import encode, request

pytestmark = pytest.mark.alone  # it counts wake-ups and processor time

IDLE_S = 6.0
WAKEUPS = "orbitmqWakeups_"
NAMED = {
    "flush", "save", "save-durable", "space", "sync-timeout", "consumer_offsets", "client_expiry", "held_pulls",
    "configuration_tables", "worker_done", "broker:_idle_connections", "name_server:_idle_connections",
    "broker:_periodic_registration", "nothing_due_any_longer", "delay-levels", "retention",
}  # fmt: skip
"""Every name that may show up on an idle server. `delay-levels`: once a second while something is pending, to see a
wall clock that was set."""


def wakeups(server: ServedProcess) -> dict[str, int]:
    facts = server.runtime()
    return {name.removeprefix(WAKEUPS): int(count) for name, count in facts.items() if name.startswith(WAKEUPS)}


def test_an_idle_server_wakes_for_named_work_only(
    serve: Callable[..., ServedProcess], figure: Callable[[str], None]
) -> None:
    server = serve()
    server.create_topic("orders", 4)
    producer, consumer = server.client(), server.client()
    for level in (4, 5, 18, 18):
        sent = producer.call(
            RequestCode.SEND_MESSAGE_V2, send_fields(properties={"UNIQ_KEY": "u", "DELAY": str(level)}), b"x"
        )
        assert sent.code == 0
    beat = {
        "clientID": "idle@1", "producerDataSet": [{"groupName": "producers"}],
        "consumerDataSet": [{
            "groupName": "readers", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False, "subscriptionDataSet": [],
        }],
    }  # fmt: skip
    assert consumer.call(RequestCode.HEART_BEAT, None, json.dumps(beat).encode()).code == 0
    for queue in range(4):
        fields = pull_fields(queue_id=queue, sysFlag=6, suspendTimeoutMillis=30_000)
        consumer.write(encode(request(RequestCode.PULL_MESSAGE, fields, opaque=100 + queue)))
    time.sleep(7)  # until what the start and the first messages left behind has been saved

    before, turns, cpu = wakeups(server), int(server.runtime()["orbitmqTurns"]), server.cpu_s()
    time.sleep(IDLE_S)
    used = server.cpu_s() - cpu
    woken = {name: count - before.get(name, 0) for name, count in wakeups(server).items()}
    woken = {name: count for name, count in woken.items() if count}
    turned = int(server.runtime()["orbitmqTurns"]) - turns
    figure(
        f"idle for {IDLE_S:.0f} s with pending levels, a producer and a consumer that holds 4 pulls: woken {woken}, "
        f"{turned} turns (8 of them for this question), {used / IDLE_S:.2%} of a core, {server.rss_mb():.0f} MB anonymous"
    )
    assert set(woken) <= NAMED
    assert woken.get("nothing_due_any_longer", 0) <= 8, woken
    assert sum(woken.values()) <= 25, woken
    assert turned <= sum(woken.values()) + 16, "no turn without a reason"
    server.stop()
