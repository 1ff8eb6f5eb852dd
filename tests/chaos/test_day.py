"""The day of a platform engineer: three brokers under load are lost, restarted, backed up and filled, and each step looks at what the
engineer would look at: exit codes and rows of commands, readiness, alerts that Prometheus fires.

`DAY_SENDS` (default 3,000) says how many messages are sent meanwhile at least; `make day` sends 60,000. A line for each step tells how long
it took, and how many sends there were, how many failed, and how many messages the reading group got again.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest
from account import Account, Fate
from day import BROKERS, CRAMPED, NAME_SERVERS, SMALL, Prometheus, Site, alert_names, firings, get
from server_process import ServedProcess
from test_cli import Cli
from test_cluster_restart import obey
from tests.edges.full_disk import small_file_system
from tests.edges.run import CannotRunError
from tests.interop.rig.toolchain import Missing
from traffic import Producing, call_again, consume, count_copies, until

import orbitmq

SENDS: Final = int(os.environ.get("DAY_SENDS", "3000"))
SENDERS: Final = 8
PAUSE_S: Final = 0.02 if SENDS > 10_000 else 0.2
LIMIT_S: Final = SENDS / 50 + 540
pytestmark = pytest.mark.timeout(LIMIT_S)

LOST: Final = "broker-b"
SAVED: Final = "broker-a"
FULL: Final = 0.93
LOOK_S: Final = 0.3

QUICK: Final = orbitmq.ClientOptions(
    route_refresh_ms=300, offset_persist_ms=1_000, heartbeat_ms=1_000, connect_timeout_ms=1_000
)
SURE: Final = orbitmq.ProducerOptions(send_timeout_ms=20_000, elsewhere_after_ms=1_000)
"""What a broker may have stored that does not come back goes to another one, and may be there twice. Sends with a key are repeated by
another producer, and wait."""
FROM_FIRST: Final = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)

DOWN, UNREGISTERED, FILLS = "OrbitmqDown", "OrbitmqNotRegistered", "OrbitmqDiskFills"
UNREAD, GIVEN_UP, UNWRITABLE = "OrbitmqNobodyConsumes", "OrbitmqDeadLetters", "OrbitmqStoreUnwritable"
FIRED: Final = {DOWN, UNREGISTERED, FILLS, UNREAD, GIVEN_UP, UNWRITABLE}

NOT_FIRED: Final = {
    "nobody copies another one": {"OrbitmqCopiesMissing", "OrbitmqSlaveBehind", "OrbitmqSlaveDoesNotFollow"},
    "there is no replicated group": {"OrbitmqGroupWithoutLeader", "OrbitmqGroupEngineSilent", "OrbitmqGroupClockOff"},
    "it needs more restarts, time or load than a day has": {
        "OrbitmqRestarted", "OrbitmqDiskFullSoon", "OrbitmqFlushBehind", "OrbitmqConsumerBehind", "OrbitmqBusy", "OrbitmqOnceMemory",
        "OrbitmqConnectionsFull", "OrbitmqMetricsIncomplete",
    },
    "something has to be broken": {
        "OrbitmqStoreFailures", "OrbitmqDamage", "OrbitmqFilesGoEarly", "OrbitmqQuarantine", "OrbitmqDefects",
    },
    "nothing waits for its time": {"OrbitmqDelaysLate", "OrbitmqLateness", "OrbitmqFarTierTrouble", "OrbitmqFarTierBehind"},
    "there is no service of pipelines": {
        "OrbitmqPipelineDown", "OrbitmqPipelineFailing", "OrbitmqPipelineStandsStill", "OrbitmqPipelineBehind",
        "OrbitmqPipelineQuarantine",
    },
}  # fmt: skip
"""What must not fire, and why; in `alerts_test.yml` each of them does."""
OF_THE_MACHINE: Final = {"OrbitmqLoopStalls"}
"""A busy machine holds any program, so it is not judged."""


def test_each_alert_fires_or_has_a_reason_not_to() -> None:
    assert FIRED | OF_THE_MACHINE | set[str]().union(*NOT_FIRED.values()) == alert_names()


def test_an_alert_that_comes_back_counts_twice() -> None:
    assert [firings(times) for times in ([1.0], [1.0, 2.0, 3.0], [1.0, 2.0, 30.0, 31.0])] == [1, 1, 2]


class Day:
    """Where the engineer is, and what has been seen."""

    def __init__(self, site: Site, disk: Path, stack: AsyncExitStack) -> None:
        self.site = site
        self.disk = disk
        self.account = Account()
        self.producing = Producing(self.account, "orders", size=100, pause_s=PAUSE_S)
        self.calls = Account()
        self.calls_end = asyncio.Event()
        self.expected: set[tuple[str, str]] = set()
        """Alerts that had to fire."""
        self.summary = ""
        self.mq: orbitmq.Client
        self.reader: orbitmq.Consumer
        self.alerts: Prometheus
        self.cli: Cli
        self._stack = stack
        self._senders: list[asyncio.Task[None]] = []
        self._reading: asyncio.Task[None]

    async def step(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        began, (sends, repeats) = time.monotonic(), self._counted()
        await work()
        failed = [str(error) for error in self.producing.errors]
        sent, again = self._counted()
        figures = f"{sent - sends} sends, {len(failed)} failed, {again - repeats} repeated"
        print(f"{name}: {time.monotonic() - began:.1f} s, {figures}", flush=True)
        assert failed == []
        assert [task for task in (*self._senders, self._reading) if task.done() and task.exception()] == []

    def _counted(self) -> tuple[int, int]:
        """Sends, and messages that came again."""
        deliveries = self.account.deliveries
        return len(self.account.fates), sum(deliveries.values()) - len(deliveries)

    async def orbitmq(self, *words: object, code: int = 0) -> Any:
        """What a command prints as JSON."""
        return await asyncio.to_thread(lambda: self.cli.json(*words, code=code))

    async def fire(self, *expected: tuple[str, str]) -> None:
        self.expected |= set(expected)
        await eventually(lambda: self.alerts.firing() >= set(expected), f"alerts: {expected}")

    async def end(self, *expected: tuple[str, str]) -> None:
        await eventually(lambda: not self.alerts.firing() & set(expected), f"the end of {expected}")

    async def uses_all(self) -> None:
        """Senders go to every broker."""
        used = self.producing.brokers_used
        used.clear()
        await until(lambda: used == set(BROKERS), lambda: f"senders use {used}")

    # --- the steps ------------------------------------------------------------------------------------------------------

    async def begins(self) -> None:
        await asyncio.to_thread(self.site.start, *NAME_SERVERS, *BROKERS)
        directory = self.site.directory
        ports = {name: http_port for name, (http_port, _) in self.site.ports.items()}
        self.alerts = self._stack.enter_context(closing(Prometheus(directory / "prometheus", ports)))
        await eventually(self.alerts.is_ready, "Prometheus being ready")
        self.cli = await asyncio.to_thread(Cli, directory / "home", self.site.address)
        await self.orbitmq("context", "expect", "here", *BROKERS)
        await self.orbitmq("topic", "create", "orders", "--queues", 4)
        await self.orbitmq("topic", "create", "payments", "--queues", 2)
        client = orbitmq.connect(self.site.address, options=QUICK, producer_options=SURE)
        self.mq = mq = await self._stack.enter_async_context(client)
        for group in ("billing", "audit", "mailer"):
            await mq.admin.create_group(group)
        assert await self.orbitmq("cluster", "check") == []
        self.reader = await self._stack.enter_async_context(mq.consumer("billing", "orders", options=FROM_FIRST))
        self._reading = asyncio.create_task(consume(self.reader, self.account))
        producer = await self._stack.enter_async_context(mq.producer("shop"))
        self._senders = [asyncio.create_task(self.producing.run(producer)) for _ in range(SENDERS)]
        till = await self._stack.enter_async_context(mq.producer("till", orbitmq.ProducerOptions()))
        self._senders.append(asyncio.create_task(call_again(till, "payments", self.calls, self.calls_end)))
        await self.uses_all()

    async def loses_a_broker(self) -> None:
        await asyncio.to_thread(self.site.kill, LOST)
        (missing,) = await self.orbitmq("cluster", "check", code=1)
        assert (missing["what"], missing["name"], missing["expected"]) == ("broker", LOST, True)
        await self.fire((DOWN, LOST))
        made = await self.orbitmq("topic", "create", "returns", "--queues", 2)
        assert set(made["brokers"]) == {*BROKERS} - {LOST}
        await asyncio.to_thread(self.site.start, LOST)
        await self.end((DOWN, LOST))
        (gap,) = await self.orbitmq("cluster", "check", code=1)
        assert (gap["what"], gap["name"], gap["missing_on"]) == ("topic", "returns", [LOST])
        (filled,) = await self.orbitmq("topic", "complete", "--all")
        assert (filled["topic"], filled["brokers"], filled["outcome"]) == ("returns", [LOST], "created")
        assert await self.orbitmq("cluster", "check") == []
        await self.uses_all()

    async def loses_its_name_servers(self) -> None:
        for name in NAME_SERVERS:
            await asyncio.to_thread(self.site.kill, name)
        expected = [*((DOWN, name) for name in NAME_SERVERS), *((UNREGISTERED, name) for name in BROKERS)]
        await self.fire(*expected)
        await asyncio.to_thread(self.site.start, *NAME_SERVERS)
        await self.end(*expected)
        # Until then a name server may know two brokers, and whoever asks that one is told of two.
        await eventually(lambda: self.alerts.least("orbitmq_registered") == 1, "registrations at both name servers")
        assert await self.orbitmq("cluster", "check") == []
        await self.uses_all()

    async def restarts_one_by_one(self) -> None:
        restart = f"touch {self.site.directory}/{{broker}}.due"
        waits = ("--route-interval", "1s", "--wait", "60s", "--start-wait", "60s")
        command = await asyncio.create_subprocess_exec(
            *self.cli.line("cluster", "restart", "--one-by-one", "--yes", "--restart-command", restart, *waits),
            env=self.cli.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        told = asyncio.ensure_future(command.communicate())
        restarted = await obey(self.site, told)
        _, text = told.result()
        assert (command.returncode, restarted) == (0, list(BROKERS)), text.decode()
        await self.uses_all()

    async def backs_up_and_restores(self) -> None:
        backup, restored = self.site.directory / "backup", self.site.directory / "restored"
        stats = await self.mq.admin.topic_stats("orders")
        before = {queue: at.max_offset for queue, at in stats.items() if queue.broker_name == SAVED}
        assert (await self.orbitmq("store", "backup", self.site.store_of(SAVED), backup))["findings"] == []
        assert (await self.orbitmq("store", "verify", backup))["damaged"] == []
        await self.orbitmq("store", "restore", backup, restored / "data")
        assert (await self.orbitmq("store", "check", restored / "data"))["findings"] == []
        settings = {**SMALL, "brokerName": SAVED}
        # Nobody comes to its own name server.
        alone = await asyncio.to_thread(lambda: ServedProcess(restored, settings=settings))
        try:
            async with orbitmq.connect(f"127.0.0.1:{alone.name_port}") as other:
                after = await other.admin.topic_stats("orders")
                found = Account()
                await count_copies(found, other, "orders")
            assert {queue: at.max_offset >= before[queue] for queue, at in after.items()} == dict.fromkeys(before, True)
            assert found.strangers == []
            assert found.copies.total() >= sum(before.values()) > 0
            await asyncio.to_thread(alone.stop)
        finally:
            alone.kill()

    async def has_a_group_without_members_and_a_dead_letter(self) -> None:
        unread = [(UNREAD, name) for name in BROKERS]
        await self.orbitmq("group", "reset", "audit", "--topic", "orders", "--earliest", "--yes")
        async with self.mq.consumer("mailer", "returns", options=FROM_FIRST) as mailer:
            rejecting = asyncio.create_task(mailer.run(reject))
            receipt = await self.mq.send("returns", b"to nowhere")
            await self.fire(*unread, (GIVEN_UP, receipt.queue.broker_name))
            mailer.stop()
            await rejecting
        assert (await self.orbitmq("group", "lag", "audit"))["lag"] > 0
        await self.orbitmq("group", "delete", "audit", "--yes")
        await self.end(*unread)

    async def fills_a_disk(self) -> None:
        alerts = [(FILLS, CRAMPED), (UNWRITABLE, CRAMPED)]
        http_port, _ = self.site.ports[CRAMPED]
        at = os.statvfs(self.disk)
        ballast = self.disk / "ballast"
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, at.f_frsize * (at.f_bfree - int(at.f_blocks * (1 - FULL))))
        await self.fire(*alerts)
        status, body = get(http_port, "/readyz")
        assert (status, [each["reason"] for each in json.loads(body)["reasons"]]) == (503, ["store_unwritable"])
        shown = {row["broker"]: float(row["disk_used"]) for row in await self.orbitmq("cluster", "show")}
        assert shown[CRAMPED] > FULL - 0.02
        ballast.unlink()
        await eventually(lambda: get(http_port, "/readyz")[0] == 200, "readiness with room on the disk")
        await self.end(*alerts)
        await self.uses_all()

    async def has_lost_nothing(self) -> None:
        account = self.account
        await until(lambda: len(account.fates) >= SENDS, account.summary, LIMIT_S)
        self.producing.stop()
        self.calls_end.set()
        await asyncio.gather(*self._senders)
        await until(lambda: not account.missing(), account.summary)
        self.reader.stop()
        await self._reading
        await self.reader.close()
        copies = await count_copies(account, self.mq, "orders")
        assert set(account.fates.values()) == {Fate.STORED}
        assert account.findings() == []
        assert account.copies.keys() == account.fates.keys()
        twice = [brokers for brokers in copies.values() if len(brokers) > 1]
        assert len(twice) <= SENDERS, "what was on its way to the broker that was killed"
        assert all(len(brokers) == 2 and brokers.count(LOST) == 1 for brokers in twice), twice
        await count_copies(self.calls, self.mq, "payments")
        calls = self.calls.copies
        assert (calls.keys(), set(calls.values())) == (self.calls.fates.keys(), {1}), "each key is stored once"
        self.summary = (
            f"{account.summary()}, {len(twice)} stored twice; {len(calls)} calls with a key, each stored once"
        )

    async def is_exported(self) -> None:
        file = self.site.directory / "cluster.json"
        await self.orbitmq("cluster", "export", file)
        exported = json.loads(file.read_text(encoding="utf-8"))
        assert [row["topic"] for row in exported["topics"]] == ["orders", "payments", "returns"]
        assert [row["group"] for row in exported["groups"]] == ["billing", "mailer"]
        assert {tuple(row["brokers"]) for row in (*exported["topics"], *exported["groups"])} == {BROKERS}
        imported = await self.orbitmq("cluster", "import", file, "--dry-run")
        assert {row["outcome"] for row in imported} == {"the same"}

    async def ends(self) -> None:
        fired = await asyncio.to_thread(self.alerts.fired)
        judged = {alert: times for alert, times in fired.items() if alert[0] not in OF_THE_MACHINE}
        assert judged == dict.fromkeys(self.expected, 1)
        assert {name for name, _ in judged} == FIRED
        for name in (*BROKERS, *NAME_SERVERS):
            await asyncio.to_thread(self.site.stop, name)


async def eventually(condition: Callable[[], bool], what: str, limit_s: float = 120) -> None:
    """Wait for what is asked of another program."""
    ends = time.monotonic() + limit_s
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < ends, f"not within {limit_s} s: {what}"
        await asyncio.sleep(LOOK_S)


async def reject(message: orbitmq.ReceivedMessage) -> None:
    raise orbitmq.Reject(f"nobody takes {message.message_id}")


async def test_every_step_of_the_day_is_what_it_says(tmp_path: Path, figure: Callable[[str], None]) -> None:
    began = time.monotonic()
    try:
        async with AsyncExitStack() as stack:
            disk = stack.enter_context(small_file_system(tmp_path / "disk", 64 + SENDS // 1_000))
            day = Day(stack.enter_context(closing(Site(tmp_path, disk))), disk, stack)
            steps = (
                day.begins, day.loses_a_broker, day.loses_its_name_servers, day.restarts_one_by_one, day.backs_up_and_restores,
                day.has_a_group_without_members_and_a_dead_letter, day.fills_a_disk, day.has_lost_nothing, day.is_exported, day.ends,
            )  # fmt: skip
            for step in steps:
                await day.step(step.__name__.replace("_", " "), step)
        figure(f"a day of {time.monotonic() - began:.0f} s, {day.summary}")
    except (CannotRunError, Missing) as reason:
        pytest.skip(str(reason))
