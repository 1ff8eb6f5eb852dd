"""The command line against a live server: what is printed can be parsed, what is changed is changed, ends are exact."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_process import ServedProcess, clean_environment, until

import orbitmq
from orbitmq.client.redrive import ORIGIN_PROPERTY

LIMIT_S = 180


class Cli:
    """Runs commands against one server, with a configuration directory of its own."""

    def __init__(self, home: Path, name_server: str) -> None:
        self.environment = {**clean_environment(), "XDG_CONFIG_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "200"}
        self.name_server = name_server
        self.run("context", "add", "here", name_server)

    def run(self, *words: object, code: int = 0, text: str | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.line(*words),
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=LIMIT_S,
            input=text,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *words: object, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code).stdout)

    def start(self, *words: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.line(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment
        )

    def line(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "orbitmq.cli.main", *map(str, words)]


@pytest.fixture(scope="module")
def cli(server: ServedProcess, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    return Cli(tmp_path_factory.mktemp("home"), f"127.0.0.1:{server.name_port}")


def test_the_cluster_at_a_glance(cli: Cli) -> None:
    (broker,) = cli.json("cluster", "show")
    assert (broker["broker"], broker["active"]) == ("broker-a", True)
    assert cli.json("broker", "list")[0]["address"] == broker["address"]
    assert "putTps" in cli.json("broker", "show", "broker-a")
    assert cli.json("cluster", "check-rt", "--count", 3)[0]["sent"] == 3


def test_settings_are_read_and_changed(cli: Cli) -> None:
    assert cli.json("broker", "config", "set", "broker-a", "fileReservedTime=30")["changed"] == {
        "fileReservedTime": "30"
    }
    assert cli.json("broker", "config", "get", "broker-a", "fileReservedTime") == {"fileReservedTime": "30"}
    cli.run("broker", "config", "get", "broker-a", "noSuchKey", code=5)
    cli.run("nameserver", "kv", "put", "tests", "k", "v=1")
    assert cli.json("nameserver", "kv", "get", "tests", "k")["value"] == "v=1"
    cli.run("nameserver", "kv", "delete", "tests", "k")
    cli.run("nameserver", "kv", "get", "tests", "k", code=5)


def test_topics_and_messages(cli: Cli) -> None:
    cli.run("topic", "create", "letters", "-q", 2)
    sent = cli.json("send", "letters", "hello", "--tag", "a", "--key", "k1", "-p", "city=Genf")
    assert sent[0]["status"] == "SEND_OK"
    assert sum(row["messages"] for row in cli.json("topic", "stats", "letters")) == 1
    (found,) = cli.json("message", "show", "letters", "--key", "k1")
    assert found["properties"]["city"] == "Genf"
    assert cli.json("message", "show", "--id", found["offset_message_id"])[0]["body"] == "hello"
    (same,) = cli.json("queryMsgByUniqueKey", "-n", cli.name_server, "-t", "letters", "-i", found["unique_key"])
    assert same["offset_message_id"] == found["offset_message_id"]


def test_an_update_by_mqadmins_name_is_ours(cli: Cli) -> None:
    cli.run("updateTopic", "-n", cli.name_server, "-c", "DefaultCluster", "-t", "aliased", "-r", 3, "-w", 3)
    (shown,) = cli.json("topic", "show", "aliased")
    assert (shown["read_queues"], shown["write_queues"]) == (3, 3)
    cli.run("deleteTopic", "-n", cli.name_server, "-c", "DefaultCluster", "-t", "aliased")
    cli.run("topicRoute", "-n", cli.name_server, "-t", "aliased", code=5)


def test_lag_members_and_reset_of_a_group(cli: Cli) -> None:
    cli.run("topic", "create", "work", "-q", 1)
    cli.run("group", "create", "workers")
    cli.run("send", "work", text="one\ntwo\nthree\n")
    asyncio.run(consume(cli.name_server, "workers", "work", 3))
    assert cli.json("group", "lag", "workers", "-t", "work")["lag"] == 0

    (planned,) = cli.json("group", "reset", "workers", "-t", "work", "--to-offset", 1, "--dry-run")
    assert (planned["before"], planned["after"], planned["done"]) == (3, 1, False)
    cli.run("group", "reset", "workers", "-t", "work", "--to-offset", 9, "--yes", code=2)
    cli.run("group", "reset", "workers", "-t", "work", "--to-offset", 1, "--yes")
    lag = cli.json("group", "lag", "workers", "-t", "work", "--fail-above", 1, code=1)
    (queue,) = [queue for queue in lag["queues"] if queue["topic"] == "work"]  # its retry topic comes with it
    assert (lag["lag"], queue["consumer_offset"]) == (2, 1)
    assert queue["behind_ms"] > 0
    assert cli.json("group", "members", "workers") == []


def test_an_online_group_is_moved_and_shows_its_owner(cli: Cli) -> None:
    cli.run("topic", "create", "online", "-q", 1)
    cli.run("send", "online", text="one\ntwo\n")

    async def work() -> list[bytes]:
        seen: list[bytes] = []
        options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
        async with (
            orbitmq.connect(cli.name_server) as mq,
            mq.consumer("online-workers", "online", options=options) as consumer,
        ):

            async def read() -> None:
                async for message in consumer:
                    seen.append(message.body)
                    await message.ack()

            reader = asyncio.create_task(read())
            await wait_for(lambda: len(seen) == 2)
            lag = await asyncio.to_thread(cli.json, "group", "lag", "online-workers", "-t", "online")
            assert {queue["owner"] for queue in lag["queues"] if queue["topic"] == "online"} == {mq.client_id}
            (member,) = await asyncio.to_thread(cli.json, "group", "members", "online-workers")
            assert (member["client_id"], member["answers"]) == (mq.client_id, True)
            (subscribed,) = await asyncio.to_thread(cli.json, "group", "subscriptions", "online-workers")
            assert (subscribed["topic"], subscribed["differs"]) == ("online", False)
            await asyncio.to_thread(cli.run, "group", "reset", "online-workers", "-t", "online", "--earliest", "--yes")
            await wait_for(lambda: len(seen) == 4)
            reader.cancel()
        return seen

    assert asyncio.run(work()) == [b"one", b"two", b"one", b"two"]


def test_tail_follows_and_ends_exactly_by_ctrl_c(cli: Cli) -> None:
    cli.run("topic", "create", "river", "-q", 1)
    tail = cli.start(
        "tail", "river", "--from-beginning", "--property", "kind=fish", "--template", "{queue_offset} {body}"
    )
    cli.run("send", "river", "trout", "-p", "kind=fish")
    cli.run("send", "river", "stone", "-p", "kind=mineral")
    cli.run("topic", "update", "river", "--queues", 2, "--write-queues", 2)
    cli.run("send", "river", text="pike\n" * 2)
    cli.run("send", "river", "salmon", "-p", "kind=fish")
    assert tail.stdout is not None
    assert tail.stdout.readline() == "0 trout\n"
    assert tail.stdout.readline().endswith(" salmon\n")  # on the new queue or the old one
    tail.send_signal(signal.SIGINT)
    out, err = tail.communicate(timeout=120)
    assert (tail.returncode, out) == (130, "")
    assert "Traceback" not in err


def test_tail_survives_a_restart_of_the_broker(serve: Callable[..., ServedProcess], tmp_path: Path) -> None:
    server = serve("restarted")
    cli = Cli(tmp_path / "home", f"127.0.0.1:{server.name_port}")
    cli.run("topic", "create", "rain", "-q", 1)
    cli.run("send", "rain", "before")
    tail = cli.start("tail", "rain", "--from-beginning", "--count", 2, "-f", "raw")
    assert tail.stdout is not None
    assert tail.stdout.readline() == "before\n"
    ports = (server.name_port, server.port)
    server.stop()
    serve("restarted", ports=ports)
    cli.run("send", "rain", "after")
    out, err = tail.communicate(timeout=120)
    assert (tail.returncode, out) == (0, "after\n")
    assert "is away" in err
    assert "is back after" in err


def test_dead_letters_are_redriven_once_each(cli: Cli) -> None:
    cli.run("topic", "create", "bills", "-q", 2)
    for number in range(5):
        cli.run("send", "bills", f"bill {number}", "--tag", "odd" if number % 2 else "even", "-p", f"number={number}")
    asyncio.run(fail_all(cli.name_server, "payers", "bills", 5))

    def dead() -> int:
        rows = cli.json("topic", "stats", "%DLQ%payers") if "%DLQ%payers" in topics(cli) else []
        return sum(row["messages"] for row in rows)

    until(lambda: dead() == 5)
    before = stored(cli, "bills")

    dry = cli.json("message", "redrive", "payers", "--tag", "odd", "--dry-run")
    assert (dry["looked_at"], dry["redriven"], dry["passed_over"], stored(cli, "bills")) == (5, 2, 3, before)

    odd = cli.json("message", "redrive", "payers", "--tag", "odd")
    assert (odd["redriven"], odd["topics"], odd["complete"]) == (2, {"bills": 2}, True)
    assert stored(cli, "bills") == before + 2
    assert cli.json("message", "redrive", "payers", "--tag", "odd")["redriven"] == 0  # the place is kept

    everything = cli.json("message", "redrive", "payers", "--rate", 1000)
    assert (everything["redriven"], stored(cli, "bills")) == (5, before + 5)  # two of them the broker knew already

    assert cli.json("message", "redrive", "payers", "--again", "--count", 1)["redriven"] == 1
    assert stored(cli, "bills") == before + 6

    lines = cli.run("tail", "bills", "--from-beginning", "--stop-at-end", "-f", "json").stdout.splitlines()
    redriven = [record for record in map(json.loads, lines) if ORIGIN_PROPERTY in record["properties"]]
    assert len(redriven) == 6
    assert {record["body"] for record in redriven} == {f"bill {number}" for number in range(5)}
    for record in redriven:
        assert record["reconsume_times"] == 0
        assert record["properties"]["number"] == record["body"].removeprefix("bill ")
        assert not {"RETRY_TOPIC", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "DELAY"} & set(record["properties"])
    cli.run("message", "redrive", "nobody", code=5)

    before = stored(cli, "bills")
    assert cli.json("message", "redrive", "payers", "--only-group")["redriven"] == 5
    assert stored(cli, "bills") == before
    assert sorted(asyncio.run(retried(cli.name_server, "payers", "bills", 5))) == [b"bill %d" % n for n in range(5)]


def test_a_redrive_that_is_killed_goes_on_without_duplicates(cli: Cli) -> None:
    cli.run("topic", "create", "slips", "-q", 1)
    cli.run("send", "slips", text="\n".join(f"slip {number}" for number in range(60)))
    asyncio.run(fail_all(cli.name_server, "clerks", "slips", 60))
    until(lambda: "%DLQ%clerks" in topics(cli) and stored(cli, "%DLQ%clerks") == 60)
    killed = cli.start("message", "redrive", "clerks", "--rate", 8)
    until(lambda: stored(cli, "slips") > 70)
    killed.kill()
    killed.communicate()
    assert stored(cli, "slips") < 120
    rest = cli.json("message", "redrive", "clerks")
    assert rest["complete"]
    assert stored(cli, "slips") == 120


def test_benchmarks_account_for_every_message(cli: Cli) -> None:
    cli.run("topic", "create", "bench", "-q", 4)
    sent = cli.json("bench", "send", "bench", "--count", 300, "--rate", 1000, "--size", 200)
    assert (sent["stored"], sent["failed"], sent["latency"]["samples"]) == (300, 0, 300)
    consumed = cli.json("bench", "consume", "bench", "--run", sent["run"], "--count", 300)
    assert (consumed["distinct"], consumed["duplicates"], consumed["missing"]) == (300, 0, 0)
    delayed = cli.json("bench", "delay", "bench", "--level", 1, "--count", 50, "--rate", 200)
    assert (delayed["received"], delayed["lost"], delayed["early"]) == (50, 0, 0)
    assert not [name for name in groups(cli) if name.startswith("orbitmq-bench")]


def test_a_shell_completes_topics_of_the_cluster(cli: Cli) -> None:
    cli.run("topic", "create", "completed")
    words = "orbitmq topic show comp"
    environment = {**cli.environment, "_ORBITMQ_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "3"}

    def completed() -> str:
        return subprocess.run(
            cli.line(), capture_output=True, text=True, env=environment, timeout=LIMIT_S, check=False
        ).stdout

    # What the cluster does not say quickly is not completed; then one presses the key again.
    until(lambda: completed() == "plain,completed\n")


def topics(cli: Cli) -> list[str]:
    return [row["topic"] for row in cli.json("topic", "list", "--all")]


def groups(cli: Cli) -> list[str]:
    return [row["group"] for row in cli.json("group", "list", "--all")]


def stored(cli: Cli, topic: str) -> int:
    return sum(row["messages"] for row in cli.json("topic", "stats", topic))


async def wait_for(condition: Callable[[], bool], limit_s: float = 120) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not come"
        await asyncio.sleep(0.02)


async def consume(name_server: str, group: str, topic: str, count: int) -> None:
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
    async with orbitmq.connect(name_server) as mq, mq.consumer(group, topic, options=options) as consumer:
        seen = 0
        async for message in consumer:
            await message.ack()
            seen += 1
            if seen == count:
                return


async def retried(name_server: str, group: str, topic: str, count: int) -> list[bytes]:
    """What a member of the group gets through its retry topic, told to be of its real topic."""
    got: list[bytes] = []
    async with orbitmq.connect(name_server) as mq, mq.consumer(group, topic) as consumer:
        async for message in consumer:
            await message.ack()
            assert message.topic == topic
            if message.record.topic == f"%RETRY%{group}":
                got.append(message.body)
            if len(got) == count:
                break
    return got


async def fail_all(name_server: str, group: str, topic: str, count: int) -> None:
    """A member that fails on every message, which its group may not retry: all become dead letters."""
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, max_retries_count=0)
    failed = 0

    async def fail(message: orbitmq.ReceivedMessage) -> None:
        nonlocal failed
        failed += 1
        if failed == count:
            consumer.stop()
        raise ValueError("this consumer always fails")

    async with orbitmq.connect(name_server) as mq, mq.consumer(group, topic, options=options) as consumer:
        await consumer.run(fail, concurrency=4)


def test_timers_are_listed_changed_exported_and_imported_once(cli: Cli, tmp_path: Path) -> None:
    cli.run("topic", "create", "visits")
    for name, after in (("ada", "2h"), ("grace", "30m"), ("grace", "36h")):
        cli.run("send", "visits", name, "--key", f"visit-{name}", "--after", after, "--property", "room=7")
    assert [row["keys"] for row in cli.json("timer", "list", "--topic", "visits")] == [
        ["visit-grace"],
        ["visit-ada"],
        ["visit-grace"],
    ]
    assert len(cli.json("timer", "list", "--topic", "visits", "--until", "1h")) == 1
    stats = cli.json("timer", "stats", "--topic", "visits", "--until", "3h")
    assert (stats["pending"], sum(bucket["count"] for bucket in stats["buckets"])) == (3, 2)

    named = ("--topic", "visits", "--key", "visit-grace")
    assert "--all" in cli.run("timer", "recall", *named, code=1).stderr
    (ada,) = cli.json("timer", "list", "--topic", "visits", "--key", "visit-ada")
    moved = cli.json("timer", "reschedule", ada["recall_handle"], "--at", "2031-01-01T00:00:00Z")
    assert (moved["verdict"], moved["matches"][0]["deliver_ms"]) == ("rescheduled", 1_924_992_000_000)
    shown = cli.json("timer", "show", "--topic", "visits", "--id", ada["message_id"])
    assert (shown["body"], shown["properties"]["room"], shown["deliver_ms"]) == ("ada", "7", 1_924_992_000_000)

    exported = tmp_path / "timers.jsonl"
    exported.write_text(cli.run("timer", "export", "--topic", "visits").stdout, encoding="utf-8")
    assert cli.json("timer", "recall", *named, "--all")["changed"] == 2
    assert cli.json("timer", "recall", "--topic", "visits", "--key", "visit-ada")["verdict"] == "recalled"
    assert cli.json("timer", "recall", *named, code=5)["verdict"] in ("not_found", "already_recalled")
    assert cli.json("timer", "import", exported, "--dry-run")["lines"] == 3
    for sent, recognised in ((3, 0), (0, 3)):
        account = cli.json("timer", "import", exported)
        assert (account["sent"], account["recognised"]) == (sent, recognised)
    again = cli.json("timer", "list", "--topic", "visits")
    assert [row["keys"] for row in again] == [["visit-grace"], ["visit-grace"], ["visit-ada"]]
    assert again[-1]["deliver_ms"] == 1_924_992_000_000
