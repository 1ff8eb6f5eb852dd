"""`orbitmq timer` and `orbitmq send --at/--after` against a server that answers from a script."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_server import Ran, ScriptedServer

from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting import timer_bodies as wire
from orbitmq.protocol.remoting.bodies import BrokerData, ClusterInfo, QueueData, TopicRouteData
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

Run = Callable[..., Ran]
DUE_MS = 1_893_456_000_000  # 2030-01-01


def handle(message_id: str) -> str:
    return base64.urlsafe_b64encode(f"v1 orders broker-a {DUE_MS} {message_id}".encode()).decode()


def pending(message_id: str, deliver_ms: int = DUE_MS, keys: str = "k") -> wire.TimerViewBody:
    return wire.TimerViewBody(
        topic="orders", message_id=message_id, keys=keys, deliver_ms=deliver_ms, size=200, handle=handle(message_id)
    )


@pytest.fixture
def cluster(server: ScriptedServer) -> ScriptedServer:
    """One broker with two pending timer messages of the key `k`, on the same port as the name server."""
    broker = BrokerData(broker_name="broker-a", broker_addrs={0: server.address}, cluster="Main")
    queues = QueueData(broker_name="broker-a", read_queue_nums=1, write_queue_nums=1, perm=6)
    server.on(
        RequestCode.GET_BROKER_CLUSTER_INFO,
        ClusterInfo(broker_addr_table={"broker-a": broker}, cluster_addr_table={"Main": ["broker-a"]}).encode(),
    )
    route = TopicRouteData(queue_datas=[queues], broker_datas=[broker]).encode()
    server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route)
    server.on(RequestCode.HEART_BEAT)
    server.on(RequestCode.UNREGISTER_CLIENT)
    stored = {"msgId": "OFFSET", "queueId": "0", "queueOffset": "7", "recallHandle": "HANDLE"}
    server.on(RequestCode.SEND_MESSAGE_V2, fields=stored)
    server.on(RequestCode.LIST_TIMERS, wire.TimerPage(timers=[pending("1"), pending("2", DUE_MS + 500)]).encode())
    server.on(
        RequestCode.COUNT_TIMERS,
        wire.TimerCountsBody(
            pending=5, by_topic={"orders": 4, "refunds": 1}, buckets=[(DUE_MS, 1), (DUE_MS + 60_000, 3)], near=5,
            next_due_ms=DUE_MS,
        ).encode(),
    )  # fmt: skip
    message = wire.TimerMessageBody(
        verdict=wire.Verdict.PENDING,
        timer=pending("1"),
        properties={"TAGS": "a", "KEYS": "k", "shop": "3", "TIMER_DELIVER_MS": str(DUE_MS), "UNIQ_KEY": "1"},
        body=b"\xff\x00",
    )
    server.on(RequestCode.GET_TIMER, message.encode())
    answers(server, RequestCode.TIMER_STATUS, (wire.Verdict.PENDING, "1"))
    return server


def answers(
    server: ScriptedServer, code: RequestCode, *found: tuple[wire.Verdict, str | None], changed: int = 0
) -> None:
    body = wire.TimerAnswers(
        [wire.TimerAnswer(verdict, None if name is None else pending(name)) for verdict, name in found], changed
    )
    server.on(code, body.encode())


def asked(server: ScriptedServer, code: RequestCode) -> list[wire.ChangeTimers]:
    return [wire.ChangeTimers.decode(command.body) for command in server.asked if command.code == code]


# --- sending


def test_send_at_and_after(orbitmq: Run, cluster: ScriptedServer) -> None:
    at = orbitmq("send", "orders", "hello", "--at", "2030-01-01T00:00:00Z", "-n", cluster.address, "--json")
    assert at.code == 0, at.err
    assert json.loads(at.out)[0]["recall_handle"] == "HANDLE"
    assert orbitmq("send", "orders", "hello", "--after", "36h", "-n", cluster.address).code == 0
    sent = [decode_properties(fields["i"]) for fields in cluster.fields_of(RequestCode.SEND_MESSAGE_V2)]
    assert [each.get("TIMER_DELIVER_MS") for each in sent] == [str(DUE_MS), None]
    assert [each.get("TIMER_DELAY_MS") for each in sent] == [None, "129600000"]
    twice = orbitmq("send", "orders", "x", "--after", "1s", "--delay-level", "3", "-n", cluster.address)
    assert twice.code == 2
    assert "one of --delay-level, --at and --after" in twice.err


# --- looking


def test_list_in_due_order(orbitmq: Run, cluster: ScriptedServer) -> None:
    table = orbitmq("timer", "list", "-n", cluster.address)
    assert table.code == 0, table.err
    assert [line.split()[2] for line in table.out.splitlines()[1:]] == ["1", "2"]
    assert "2030-01-01T00:00:00.500Z" in table.out
    filtered = orbitmq(
        "timer", "list", "--topic", "orders", "--key-prefix", "4", "--until", "2030-01-02T00:00:00Z", "--count", 1,
        "-n", cluster.address, "--json",
    )  # fmt: skip
    (row,) = json.loads(filtered.out)
    assert (row["deliver_ms"], row["keys"], row["recall_handle"]) == (DUE_MS, ["k"], handle("1"))
    assert "and more" in filtered.err
    query = wire.TimerQuery.decode([each for each in cluster.asked if each.code == RequestCode.LIST_TIMERS][-1].body)
    assert (query.topic, query.key_prefix, query.until_ms) == ("orders", "4", DUE_MS + 86_400_000)


@pytest.mark.parametrize("command", ["list", "export", "stats"])
def test_a_list_that_is_not_all_says_so(orbitmq: Run, cluster: ScriptedServer, command: str) -> None:
    cluster.on(RequestCode.LIST_TIMERS, wire.TimerPage(timers=[pending("1")], left_out=3).encode())
    shown = orbitmq("timer", command, "-n", cluster.address)
    assert shown.code == 0, shown.err
    assert "up to 3 more messages wait" in shown.err


def test_a_span_lies_ahead(orbitmq: Run, cluster: ScriptedServer) -> None:
    orbitmq("timer", "list", "--from", "0", "--until", "10m", "-n", cluster.address)
    query = wire.TimerQuery.decode([each for each in cluster.asked if each.code == RequestCode.LIST_TIMERS][-1].body)
    assert query.from_ms == 0
    assert query.until_ms is not None
    assert query.until_ms > 1_700_000_000_000


@pytest.mark.parametrize(
    "arguments",
    [
        ["--key", "k"],
        ["--key-prefix", "k"],
        ["--topic", "orders", "--key", "k", "--key-prefix", "k"],
        ["--from", "2h", "--until", "1h"],
    ],
)
def test_filters_that_do_not_go_together(orbitmq: Run, cluster: ScriptedServer, arguments: list[str]) -> None:
    for command in ("list", "export"):
        assert orbitmq("timer", command, *arguments, "-n", cluster.address).code == 2


def test_show_one_in_full(orbitmq: Run, cluster: ScriptedServer) -> None:
    shown = orbitmq("timer", "show", "--topic", "orders", "--id", "1", "-n", cluster.address, "--json")
    record = json.loads(shown.out)
    assert (record["body"], record["body_encoding"], record["tag"]) == (
        base64.b64encode(b"\xff\x00").decode(),
        "base64",
        "a",
    )
    cluster.on(RequestCode.GET_TIMER, wire.TimerMessageBody(verdict=wire.Verdict.NOT_FOUND).encode())
    answers(cluster, RequestCode.TIMER_STATUS, (wire.Verdict.ALREADY_DELIVERED, "1"))
    gone = orbitmq("timer", "show", handle("1"), "-n", cluster.address)
    assert gone.code == 5
    assert "already_delivered" in gone.out


def test_stats_draw_a_strip(orbitmq: Run, cluster: ScriptedServer) -> None:
    span = ("--from", str(DUE_MS), "--until", str(DUE_MS + 300_000), "--bucket", "1m")
    table = orbitmq("timer", "stats", *span, "-n", cluster.address)
    assert table.code == 0, table.err
    assert "▃█···" in table.out
    assert "4 in this time, at most 3 in one span" in table.out
    document = json.loads(orbitmq("timer", "stats", *span, "-n", cluster.address, "--json").out)
    assert document["buckets"] == [{"begin_ms": DUE_MS, "count": 1}, {"begin_ms": DUE_MS + 60_000, "count": 3}]
    assert (document["pending"], document["by_topic"]) == (5, {"orders": 4, "refunds": 1})
    query = wire.CountQuery.decode([each for each in cluster.asked if each.code == RequestCode.COUNT_TIMERS][-1].body)
    assert (query.from_ms, query.bucket_ms) == (DUE_MS, 60_000)
    for wrong in (["--bucket", "1ms"], ["--bucket", "0s"], ["--until", "1"]):
        assert orbitmq("timer", "stats", *wrong, "-n", cluster.address).code == 2


# --- changing


def test_recall(orbitmq: Run, cluster: ScriptedServer) -> None:
    answers(cluster, RequestCode.RECALL_TIMERS, (wire.Verdict.RECALLED, "1"), changed=1)
    done = orbitmq("timer", "recall", handle("1"), "-n", cluster.address)
    assert done.code == 0, done.err
    assert "recalled" in done.out
    by_key = orbitmq("timer", "recall", "--topic", "orders", "--key", "k", "--all", "-n", cluster.address, "--json")
    assert json.loads(by_key.out)["changed"] == 1
    first, second = asked(cluster, RequestCode.RECALL_TIMERS)
    assert first.selector == wire.TimerSelector(handle=handle("1"))
    assert second.selector == wire.TimerSelector(topic="orders", key="k", all=True)


@pytest.mark.parametrize(
    ("verdict", "code", "said"),
    [
        (wire.Verdict.AMBIGUOUS, 1, "--all changes them all"),
        (wire.Verdict.NOT_FOUND, 5, "not found"),
        (wire.Verdict.TOO_LATE, 1, ""),
        (wire.Verdict.ALREADY_RECALLED, 1, ""),
    ],
)
def test_the_exit_code_says_whether_it_was_done(
    orbitmq: Run, cluster: ScriptedServer, verdict: wire.Verdict, code: int, said: str
) -> None:
    answers(cluster, RequestCode.RECALL_TIMERS, (verdict, None))
    ran = orbitmq("timer", "recall", "--topic", "orders", "--key", "k", "-n", cluster.address)
    assert ran.code == code
    assert said in ran.err


def test_a_dry_run_asks_only(orbitmq: Run, cluster: ScriptedServer) -> None:
    for command in (["recall"], ["reschedule", "--after", "1h"]):
        ran = orbitmq("timer", *command, "--topic", "orders", "--id", "1", "--dry-run", "-n", cluster.address)
        assert ran.code == 0, ran.err
        assert "nothing was changed" in ran.err
    assert not asked(cluster, RequestCode.RECALL_TIMERS) + asked(cluster, RequestCode.RESCHEDULE_TIMERS)


def test_reschedule(orbitmq: Run, cluster: ScriptedServer) -> None:
    answers(cluster, RequestCode.RESCHEDULE_TIMERS, (wire.Verdict.RESCHEDULED, "1"), changed=1)
    named = ("--topic", "orders", "--id", "1", "-n", cluster.address)
    assert orbitmq("timer", "reschedule", *named, "--at", "2030-01-01T00:00:00Z").code == 0
    assert orbitmq("timer", "reschedule", *named, "--after", "90s").code == 0
    for wrong in ([], ["--at", "now", "--after", "1s"]):
        assert orbitmq("timer", "reschedule", *named, *wrong).code == 2
    changes = asked(cluster, RequestCode.RESCHEDULE_TIMERS)
    assert [(each.deliver_ms, each.delay_ms) for each in changes] == [(DUE_MS, None), (None, 90_000)]


@pytest.mark.parametrize("command", ["show", "recall"])
@pytest.mark.parametrize(
    "named",
    [
        [],
        ["--topic", "orders"],
        ["--id", "1"],
        [handle("1"), "--topic", "orders"],
        ["--topic", "t", "--id", "1", "--key", "k"],
    ],
)
def test_what_names_no_message_is_refused(
    orbitmq: Run, cluster: ScriptedServer, command: str, named: list[str]
) -> None:
    ran = orbitmq("timer", command, *named, "-n", cluster.address)
    assert ran.code == 2
    assert "HANDLE" in ran.err


def test_rocketmq_takes_a_recall_by_handle(orbitmq: Run, cluster: ScriptedServer) -> None:
    cluster.on(RequestCode.RECALL_TIMERS, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    cluster.on(RequestCode.RECALL_MESSAGE, fields={"msgId": "1"})
    ran = orbitmq("timer", "recall", handle("1"), "-n", cluster.address)
    assert (ran.code, "does not tell" in ran.err) == (0, True)
    by_key = orbitmq("timer", "recall", "--topic", "orders", "--key", "k", "-n", cluster.address)
    assert by_key.code == 4
    assert "broker broker-a has no request for" in by_key.err


# --- export and import


def test_what_was_exported_is_imported(
    orbitmq: Run, cluster: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = orbitmq("timer", "export", "--topic", "orders", "-n", cluster.address)
    assert exported.code == 0, exported.err
    lines = [json.loads(line) for line in exported.out.splitlines()]
    assert lines[0] == {
        "topic": "orders", "message_id": "1", "deliver_ms": DUE_MS, "body": "/wA=", "keys": ["k"], "tag": "a",
        "properties": {"shop": "3"},
    }  # fmt: skip
    file = tmp_path / "timers.jsonl"
    file.write_text(exported.out, encoding="utf-8")

    dry = orbitmq("timer", "import", file, "--dry-run", "-n", cluster.address, "--json")
    assert json.loads(dry.out) == {"lines": 2, "sent": 0, "recognised": 0, "due_already": 0, "dry_run": True}
    assert not cluster.fields_of(RequestCode.SEND_MESSAGE_V2)

    assert orbitmq("timer", "import", file, "-n", cluster.address).code == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(exported.out.encode())))
    piped = orbitmq("timer", "import", "-n", cluster.address, "--json")
    assert json.loads(piped.out)["sent"] == 2
    sent = [command for command in cluster.asked if command.code == RequestCode.SEND_MESSAGE_V2]
    assert {bytes(command.body) for command in sent} == {b"\xff\x00"}
    properties = decode_properties(sent[0].fields["i"])
    assert {name: properties[name] for name in ("TIMER_DELIVER_MS", "TAGS", "KEYS", "shop", "ORBITMQ_ONCE_KEY")} == {
        "TIMER_DELIVER_MS": str(DUE_MS), "TAGS": "a", "KEYS": "k", "shop": "3", "ORBITMQ_ONCE_KEY": "1",
    }  # fmt: skip


def test_an_import_names_itself_by_what_is_in_it_and_counts_what_the_broker_had(
    orbitmq: Run, cluster: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def had_the_second(command: Command) -> tuple[int, str | None, dict[str, str], bytes]:
        fields = {"msgId": "OFFSET", "queueId": "0", "queueOffset": "7", "transactionId": "FIRST"}
        return 0, None, fields | ({"orbitmqRepeat": "stored"} if bytes(command.body) == b"2" else {}), b""

    def scopes() -> list[str]:
        sent = [command for command in cluster.asked if command.code == RequestCode.SEND_MESSAGE_V2]
        cluster.asked.clear()
        return sorted({decode_properties(command.fields["i"])["ORBITMQ_SCOPE"] for command in sent})

    cluster.answers[RequestCode.SEND_MESSAGE_V2] = had_the_second
    lines = [
        {"topic": "orders", "message_id": name, "deliver_ms": 1, "body": base64.b64encode(name.encode()).decode()}
        for name in ("1", "2")
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    file = tmp_path / "timers.jsonl"
    file.write_text(text, encoding="utf-8")
    ran = orbitmq("timer", "import", file, "-n", cluster.address, "--json")
    assert json.loads(ran.out) == {"lines": 2, "sent": 1, "recognised": 1, "due_already": 2, "dry_run": False}
    (named,) = scopes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    orbitmq("timer", "import", "-n", cluster.address)
    assert scopes() == [named], "the same lines, wherever they come from"
    file.write_text(text.replace('"deliver_ms": 1', '"deliver_ms": 2'), encoding="utf-8")
    orbitmq("timer", "import", file, "-n", cluster.address)
    assert named not in scopes(), "another export"
    orbitmq("timer", "import", file, "-n", cluster.address, "--scope", "mine")
    assert scopes() == ["mine"]


def test_a_wrong_line_ends_the_import_with_its_number(orbitmq: Run, cluster: ScriptedServer, tmp_path: Path) -> None:
    good = '{"topic":"orders","message_id":"1","deliver_ms":1,"body":"eA=="}\n'
    for wrong in ("{}", "no JSON", good.replace("eA==", "?").strip(), good.replace("body", "bodies").strip()):
        file = tmp_path / "timers.jsonl"
        file.write_text(good + "\n" + wrong + "\n" + good, encoding="utf-8")
        ran = orbitmq("timer", "import", file, "-n", cluster.address, "--json")
        assert ran.code == 2
        assert "line 3 of" in ran.err
        assert json.loads(ran.out) == {"lines": 1, "sent": 1, "recognised": 0, "due_already": 1, "dry_run": False}
        assert "--scope orbitmq-timer-import-" in ran.err
    assert orbitmq("timer", "import", tmp_path / "missing", "-n", cluster.address).code == 2


def test_a_send_that_fails_ends_the_import_with_its_account(
    orbitmq: Run, cluster: ScriptedServer, tmp_path: Path
) -> None:
    def refuse_the_second(command: Command) -> tuple[int, str | None, dict[str, str], bytes]:
        if bytes(command.body) == b"2":
            return ResponseCode.MESSAGE_ILLEGAL, "no", {}, b""
        return 0, None, {"msgId": "OFFSET", "queueId": "0", "queueOffset": "7"}, b""

    cluster.answers[RequestCode.SEND_MESSAGE_V2] = refuse_the_second
    file = tmp_path / "timers.jsonl"
    lines = [
        {"topic": "orders", "message_id": name, "deliver_ms": 1, "body": base64.b64encode(name.encode()).decode()}
        for name in ("1", "2", "3")
    ]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    ran = orbitmq("timer", "import", file, "-n", cluster.address, "--json")
    assert ran.code == 4
    assert json.loads(ran.out)["sent"] == 2
    assert "line 2 of" in ran.err
    assert "--scope orbitmq-timer-import-" in ran.err


@pytest.mark.parametrize("wrong", [{"topic": ""}, {"tag": ""}, {"message_id": ""}, {"deliver_ms": 10**17}])
def test_a_line_that_no_client_sends_is_named_with_the_scope_that_passes_over_the_others(
    orbitmq: Run, cluster: ScriptedServer, tmp_path: Path, wrong: dict[str, object]
) -> None:
    """Put right, the file would have another scope, and what stands before the line would be sent twice."""
    file = tmp_path / "timers.jsonl"
    good: dict[str, object] = {"topic": "orders", "deliver_ms": 1, "body": "eA=="}
    lines = [good | {"message_id": "1"}, good | {"message_id": "2"} | wrong]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    ran = orbitmq("timer", "import", file, "-n", cluster.address, "--json")
    assert ran.code == 2
    assert json.loads(ran.out)["sent"] == 1
    assert "line 2 of" in ran.err
    assert "--scope orbitmq-timer-import-" in ran.err
