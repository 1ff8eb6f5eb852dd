"""What the HTTP port answers, in the process that it watches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
from tests.worlds.listening_ports import ports_in_a_row

from orbitmq.clock import ManualClock, SystemClock
from orbitmq.errors import PortTakenError
from orbitmq.server.configuration.settings import Overrides, Role, ServerSettings, load_settings
from orbitmq.server.lifecycle import ServerProcess
from orbitmq.server.monitoring import watch_role
from orbitmq.server.monitoring.http_front import HttpAnswer, HttpRequest
from orbitmq.server.monitoring.watching import UnreadyReason, Watching
from orbitmq.store.message import NewMessage
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, one
from orbitmq.telemetry.registry import Registry

OPENMETRICS = "application/openmetrics-text"
SMALL = ("mappedFileSizeCommitLog=1048576", "maxIndexNum=2000", "maxHashSlotNum=500", "grpcServerPort=0")


def settings_of(data: Path, port: int, *flags: str, roles: tuple[Role, ...] = tuple(Role)) -> ServerSettings:
    small = SMALL if Role.BROKER in roles else ()
    overrides = Overrides(data=data, nameserver_port=0, broker_port=port)
    return load_settings(roles=roles, flags=[*small, *flags], overrides=overrides)


def free_port() -> int:
    return ports_in_a_row(1)[0]


async def get(watching: Watching, path: str, accept: str = "") -> HttpAnswer:
    return await watching.answer(HttpRequest(path, accept))


@pytest.fixture
def watching() -> Watching:
    return Watching(Registry([]), SystemClock())


async def test_healthy_is_who_answers(watching: Watching) -> None:
    answer = await get(watching, "/healthz")
    assert answer.status == 200
    assert json.loads(answer.body)["status"] == "alive"


async def test_every_reason_against_readiness_is_told(watching: Watching) -> None:
    assert json.loads((await get(watching, "/readyz")).body) == {"status": "ready"}
    watching.readiness.append(lambda: [UnreadyReason("store_unwritable", "the disk is full")])
    watching.readiness.append(lambda: [UnreadyReason("not_registered", "nobody answers")])
    answer = await get(watching, "/readyz")
    assert answer.status == 503
    assert json.loads(answer.body) == {
        "status": "not ready",
        "reasons": [
            {"reason": "store_unwritable", "text": "the disk is full"},
            {"reason": "not_registered", "text": "nobody answers"},
        ],
    }


async def test_a_remark_is_told_and_keeps_nobody_away(watching: Watching) -> None:
    watching.remarks.append(lambda: [UnreadyReason("copies_missing", "1 more slave has to keep up")])
    told = {"remarks": [{"reason": "copies_missing", "text": "1 more slave has to keep up"}]}
    answer = await get(watching, "/readyz")
    assert (answer.status, json.loads(answer.body)) == (200, {"status": "ready", **told})
    watching.readiness.append(lambda: [UnreadyReason("starting", "soon")])
    answer = await get(watching, "/readyz")
    assert (answer.status, json.loads(answer.body)["remarks"]) == (503, told["remarks"])


async def test_other_paths_name_those_that_exist(watching: Watching) -> None:
    answer = await get(watching, "/")
    assert answer.status == 404
    assert answer.body == b"served here: /metrics, /healthz, /readyz\n"


async def test_metrics_can_be_switched_off() -> None:
    watching = Watching(Registry([]), SystemClock(), metrics=False)
    assert (await get(watching, "/metrics")).status == 404
    assert (await get(watching, "/healthz")).status == 200


async def test_scrapes_that_come_together_share_one_text(watching: Watching) -> None:
    answers = await asyncio.gather(*(get(watching, "/metrics") for _ in range(20)))
    assert {answer.status for answer in answers} == {200}
    assert watching.registry.scrapes == 1


async def test_whoever_leaves_does_not_stop_the_scrape_of_others(watching: Watching) -> None:
    first = asyncio.ensure_future(get(watching, "/metrics"))
    second = asyncio.ensure_future(get(watching, "/metrics"))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).status == 200


async def test_a_preparation_that_fails_costs_only_what_it_prepares(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> None:
        raise RuntimeError("a defect")

    watching.preparations.append(broken)
    answer = await get(watching, "/metrics")
    assert b"orbitmq_scrape_failures_total 1" in answer.body
    assert "could not be had" in caplog.text


async def test_a_process_that_stops_ends_its_scrapes(watching: Watching) -> None:
    waits = asyncio.Event()

    async def hangs() -> None:
        await waits.wait()

    watching.preparations.append(hangs)
    asked = asyncio.ensure_future(get(watching, "/metrics"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    watching.stop()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (await get(watching, "/metrics")).status == 503
    assert (await get(watching, "/healthz")).status == 200


async def test_a_large_scrape_lets_other_work_through() -> None:
    """Each look at the clock finds another millisecond gone: a slice ends after a few looks."""
    clock = ManualClock()

    class RunningClock:
        def now_ms(self) -> int:
            return clock.now_ms()

        def now_ns(self) -> int:
            return clock.now_ns()

        def monotonic_ns(self) -> int:
            clock.advance(1)
            return clock.monotonic_ns()

    def many() -> Iterator[Family]:
        for _ in range(1_000):
            yield one(catalogue.TOPIC_NUMBER, 1)

    registry = Registry([])
    registry.add(many)
    watching = Watching(registry, RunningClock())
    turns = 0
    scrape = asyncio.ensure_future(get(watching, "/metrics"))
    while not scrape.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 30
    assert (await scrape).body.count(b"rocketmq_topic_number 1") == 1_000


# --- in a process -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(data: Path, *flags: str, **more: object) -> AsyncIterator[ServerProcess]:
    settings = settings_of(data, free_port(), "metricsPromExporterPort=0", *flags, **more)  # type: ignore[arg-type]
    process = ServerProcess(settings)
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


async def values(process: ServerProcess) -> dict[str, float]:
    answer = await get(process.watch.watching, "/metrics", OPENMETRICS)
    return {sample.name: sample.value for family in read(answer.body.decode()) for sample in family.samples}


async def test_a_server_is_ready_when_it_serves_and_says_why_when_not(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as process:
        watching = process.watch.watching
        assert (await get(watching, "/readyz")).status == 200
        assert process.broker is not None
        process.broker.store.refuse("test", "the disk is full (99 % used)")
        answer = await get(watching, "/readyz")
        assert answer.status == 503
        assert json.loads(answer.body)["reasons"] == [
            {"reason": "store_unwritable", "text": "the disk is full (99 % used)"}
        ]
        assert (await values(process))["orbitmq_store_writable"] == 0
        process.broker.store.allow("test")
        assert (await get(watching, "/readyz")).status == 200
    assert watching.reasons()[0].reason == "stopping"


async def test_health_names_no_topic_where_callers_have_to_be_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_role, "_once_memory", lambda sends: {"onceMemory": {"owner": "^orders", "ratio": 0.5}})
    user = 'initAuthenticationUser={"username":"root","password":"root-secret"}'
    inner = 'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"inner-secret"}'
    for flags, is_told in (((), True), (("authenticationEnabled=true", user, inner), False)):
        async with running(tmp_path / str(is_told), *flags) as process:
            assert (b"^orders" in (await get(process.watch.watching, "/readyz")).body) is is_told


async def test_a_disk_that_hangs_hides_ages_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch_role, "SCRAPE_COLD_WAIT_MS", 1)
    async with running(tmp_path / "data") as process:
        assert process.broker is not None
        store = process.broker.store
        store.append(NewMessage("orders", 0, b"x", b""))
        store.commit()
        monkeypatch.setattr(type(store), "warm_from", property(lambda self: store.log.written_end))
        jobs: list[Any] = []
        with monkeypatch.context() as hanging:
            hanging.setattr(store, "read_elsewhere", lambda job, done: jobs.append((job, done)))
            for _ in range(3):
                found = await values(process)
                assert found["orbitmq_store_writable"] == 1
                assert "rocketmq_storage_message_reserve_time" not in found
        jobs = [one for one in jobs if "_Reading" in one[1].__qualname__]  # housekeeping reads there as well
        assert len(jobs) == 1, "jobs do not pile up behind a disk that hangs"
        assert "takes longer than" in caplog.text
        job, done = jobs[0]
        done(job())
        assert (await values(process))["rocketmq_storage_message_reserve_time"] >= 0


async def test_a_broker_that_no_name_server_knows_is_not_ready(tmp_path: Path) -> None:
    nobody = f"namesrvAddr=127.0.0.1:{free_port()}"
    async with running(tmp_path / "data", nobody, roles=(Role.BROKER,)) as process:
        (reason,) = process.watch.watching.reasons()
        assert reason.reason == "not_registered"
        assert (await values(process))["orbitmq_registered"] == 0


async def test_a_name_server_alone_is_watched_too(tmp_path: Path) -> None:
    async with running(tmp_path / "data", roles=(Role.NAMESERVER,)) as process:
        assert (await get(process.watch.watching, "/readyz")).status == 200
        found = await values(process)
        assert found["orbitmq_nameserver_brokers"] == 0
        assert "orbitmq_store_writable" not in found
        text = (await get(process.watch.watching, "/metrics")).body.decode()
        assert 'node_type="nameserver",node_id="127.0.0.1:0"' in text


async def test_an_operators_own_labels_stand_on_every_sample(tmp_path: Path) -> None:
    async with running(tmp_path / "data", "metricsLabel=region:north,zone:a b") as process:
        text = (await get(process.watch.watching, "/metrics")).body.decode()
        samples = [line for line in text.splitlines() if not line.startswith("#")]
        assert len(samples) > 100
        assert all('region="north",zone="a b"' in line for line in samples)


@pytest.mark.parametrize("flag", ["metricsExporterType=DISABLE", "httpEnable=false"])
async def test_what_is_switched_off_is_off(tmp_path: Path, flag: str) -> None:
    async with running(tmp_path / "data", flag) as process:
        assert process.watch.front.is_listening == (flag != "httpEnable=false")
        assert ("http " in process.summary()) == process.watch.front.is_listening
        if process.watch.front.is_listening:
            assert (await get(process.watch.watching, "/metrics")).status == 404


async def test_a_port_that_was_asked_for_must_be_had(tmp_path: Path) -> None:
    async with running(tmp_path / "one", roles=(Role.NAMESERVER,)) as process:
        port = process.watch.front.address[1]
        other = ServerProcess(
            settings_of(tmp_path / "two", 0, f"metricsPromExporterPort={port}", roles=(Role.NAMESERVER,))
        )
        with pytest.raises(PortTakenError, match=str(port)):
            await other.start()


async def test_the_default_port_may_be_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path / "one", roles=(Role.NAMESERVER,)) as process:
        settings = settings_of(tmp_path / "two", 0, roles=(Role.NAMESERVER,))
        taken = process.watch.front.address[1]

        settings = msgspec.structs.replace(settings, watch=msgspec.structs.replace(settings.watch, http_port=taken))
        other = ServerProcess(settings)
        await other.start()
        assert not other.watch.front.is_listening
        assert "serves without metrics and health" in caplog.text
        await other.stop()
