"""Edge: the wall clock is wrong by ten years for a moment."""

from __future__ import annotations

import time
from typing import Final

from tests.edges.repeats import Repeats
from tests.edges.run import EdgeRun
from tests.edges.traffic import now_ms
from tests.system.server_process import RawClient, pull_fields

from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

YEARS_MS: Final = 10 * 365 * 86_400_000
DUE_AFTER_MS: Final = 3_000
LATE_MS: Final = 8_000
"""Beyond its due time a message comes within that, on a busy machine too."""

TRUE_WITHIN_MS: Final = 60_000


def clock_jumps(run: EdgeRun) -> None:
    """Ten years ahead or back for a moment: store times go on, nothing is early, nothing stays away, no send is forgotten."""
    jump_ms = run.random.choice([YEARS_MS, YEARS_MS, -YEARS_MS])
    server = run.start()
    server.create_topic("orders", 2)
    sends = Repeats(run)
    with server.client() as client:
        first, answer, _ = sends.send(client, "orders", "before")
        due_ms = now_ms() + DUE_AFTER_MS
        run.traffic.send(client, "orders", (0, 1), count=10, due_ms=due_ms)
        run.faults.move_clock(jump_ms)
        began = time.monotonic()
        while time.monotonic() < began + 0.5:
            run.traffic.send(client, "orders", (0, 1), count=2)
            run.traffic.send(client, "orders", (0,), count=1, due_ms=due_ms)
            time.sleep(0.05)
        _expect_true_store_times(run, client, "during the jump")
        run.faults.move_clock(0)
        run.traffic.send(client, "orders", (0, 1), count=10)
        run.traffic.send(client, "orders", (0, 1), count=5, due_ms=due_ms)
        sends.repeat(client, "orders", "before", first, answer)
        ends = [run.traffic.read(client, "orders", queue) for queue in (0, 1)]
        while run.account.missing() and now_ms() < due_ms + LATE_MS:
            ends = [run.traffic.read(client, "orders", queue, begin=end) for queue, end in enumerate(ends)]
            time.sleep(0.02)
        late = now_ms() - due_ms
        _expect_true_store_times(run, client, "after the jump")
    run.say(
        f"the clock went by {jump_ms // YEARS_MS * 10} years for half a second; the last message came {late} ms after its time"
    )
    run.stop(server)
    again = run.start()
    with again.client() as client:
        run.traffic.send(client, "orders", (0, 1), count=3)
        ends = [run.traffic.read(client, "orders", queue, begin=end) for queue, end in enumerate(ends)]
        _expect_true_store_times(run, client, "after a restart")
    run.stop(again)


def _expect_true_store_times(run: EdgeRun, client: RawClient, when: str) -> None:
    at, wrong, now = 0, 0, now_ms()
    while True:
        answer = client.call(RequestCode.PULL_MESSAGE, pull_fields("orders", 0, at))
        if answer.code != ResponseCode.SUCCESS:
            break
        records = list(iter_records(bytes(answer.body)))
        wrong += sum(abs(record.store_timestamp - now) > TRUE_WITHIN_MS for record in records)
        at = int(answer.fields["nextBeginOffset"])
    run.expect(not wrong, f"{wrong} messages have wrong store times {when}")
