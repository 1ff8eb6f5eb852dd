"""A real server as its operator sees it: metrics after traffic, readiness, and who may disturb."""

from __future__ import annotations

import http.client
import importlib.util
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
from promtool import promtool
from server_process import RawClient, ServedProcess, clean_environment, pull_fields, send_fields, until

from orbitmq.protocol.remoting.commands import RequestCode
from orbitmq.protocol.remoting.frame import encode, request
from orbitmq.telemetry.catalogue import ALL
from orbitmq.telemetry.metric import MetricKind

ROOT = Path(__file__).resolve().parents[2]


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `orbitmq` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "orbitmq.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=240,
        check=False,
    )


Samples = dict[str, list[tuple[dict[str, str], float]]]
SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE


def get(port: int, path: str, accept: str = "") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("GET", path, headers={"Accept": accept} if accept else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def samples(server: ServedProcess) -> Samples:
    """Name of a sample -> its labels and values, as Prometheus' own library reads them."""
    status, body = get(server.http_port, "/metrics", "application/openmetrics-text")
    assert status == 200
    found: Samples = {}
    for family in read(body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def value(found: Samples, name: str, **labels: str) -> float:
    matching = [number for own, number in found.get(name, []) if labels.items() <= own.items()]
    assert len(matching) == 1, (name, labels, found.get(name))
    return matching[0]


def reader_of_expressions() -> ModuleType:
    path = ROOT / "tests" / "unit" / "deploy" / "watched_metrics.py"
    spec = importlib.util.spec_from_file_location("watched_metrics", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def heartbeat(group: str, topic: str) -> bytes:
    subscription = {
        "topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1, "expressionType": "TAG",
        "classFilterMode": False,
    }  # fmt: skip
    beat = {
        "clientID": "watched@1", "producerDataSet": [{"groupName": "producers"}],
        "consumerDataSet": [{
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False, "subscriptionDataSet": [subscription],
        }],
    }  # fmt: skip
    return json.dumps(beat).encode()


def transactions(server: ServedProcess, client: RawClient) -> None:
    """Three half messages: one is committed, one rolled back, and one stays undecided."""
    server.create_topic("paid")
    for number, decision in enumerate((8, 12, 0)):
        said = {"UNIQ_KEY": f"{number}" * 32, "TRAN_MSG": "true", "PGROUP": "producers"}
        half = client.call(SEND, send_fields("paid", properties=said, f=4), b"half")
        assert half.code == 0, half.remark
        if decision:
            fields = {
                "topic": "paid", "producerGroup": "producers", "tranStateTableOffset": half.text("queueOffset"),
                "commitLogOffset": str(int(half.text("msgId")[16:], 16)), "commitOrRollback": str(decision),
                "fromTransactionCheck": "false", "msgId": half.text("transactionId"), "transactionId": half.text("transactionId"),
            }  # fmt: skip
            decided = client.call(RequestCode.END_TRANSACTION, fields)
            assert decided.code == 0, decided.remark


def pop_one(client: RawClient) -> None:
    """A message that nobody acknowledges: it gets a checkpoint, and comes back after two seconds."""
    fields = {
        "consumerGroup": "workers", "topic": "orders", "queueId": "0", "maxMsgNums": "1", "invisibleTime": "2000", "pollTime": "0",
        "bornTime": "0", "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip
    popped = client.call(RequestCode.POP_MESSAGE, fields)
    assert popped.code == 0, popped.remark


def use_everything(server: ServedProcess, client: RawClient) -> None:
    """Traffic that touches every metric: plain, delayed and large sends, pulls, pops, commits, dead letters, refusals."""
    server.create_topic("orders")
    fields = {"groupName": "readers", "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 0}
    made = client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, json.dumps(fields).encode())
    assert made.code == 0, made.remark
    assert client.call(RequestCode.HEART_BEAT, None, heartbeat("readers", "orders")).code == 0
    for number in range(40):
        assert client.call(SEND, send_fields(), b"x" * (2_000 if number % 10 == 0 else 100)).code == 0
    assert client.call(SEND, send_fields(properties={"UNIQ_KEY": "d" * 32, "DELAY": "1"}), b"later").code == 0
    assert client.call(SEND, send_fields(properties={"UNIQ_KEY": "e" * 32, "DELAY": "18"}), b"much later").code == 0
    soon, far = {"UNIQ_KEY": "f" * 32, "TIMER_DELAY_MS": "300"}, {"UNIQ_KEY": "0" * 32, "TIMER_DELAY_SEC": "7200"}
    assert client.call(SEND, send_fields(properties=soon), b"on time").code == 0
    assert client.call(SEND, send_fields(properties=far), b"in two hours").code == 0
    transactions(server, client)
    pop_one(client)
    at = 0
    while at < 20:  # an answer ends where the kernel is still busy with a page
        answer = client.call(PULL, pull_fields(offset=at, maxMsgNums=20 - at, sysFlag=5))
        assert answer.code == 0
        at = answer.integer("nextBeginOffset")
    commit = {"consumerGroup": "readers", "topic": "orders", "queueId": "0", "commitOffset": "10"}
    assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
    back = {
        "group": "readers", "offset": "0", "delayLevel": "-1", "originMsgId": "m", "originTopic": "orders",
        "maxReconsumeTimes": "0",
    }  # fmt: skip
    sent_back = client.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)
    assert sent_back.code == 0, sent_back.remark
    assert client.call(SEND, send_fields(topic="a topic with blanks"), b"x").code != 0
    assert client.call(29_999).code == 3


def test_every_metric_is_there_and_counts(serve: Callable[..., ServedProcess], figure: Callable[[str], None]) -> None:
    levels = " ".join(["1s"] * 17 + ["2h"])
    settings = {"messageDelayLevel": levels, "popCkStayBufferTime": "100", "tls.test.mode.enable": "true"}
    server = serve(settings=settings)
    client = server.client()
    use_everything(server, client)
    ssl.get_server_certificate(("127.0.0.1", server.port), timeout=120)
    with socket.create_connection(("127.0.0.1", server.grpc_port), timeout=120) as no_http2:
        no_http2.sendall(bytes(100))
        while no_http2.recv(1_000):
            pass
    until(
        lambda: value(samples(server), "orbitmq_delay_released_total") == 1, what="the delivery of the delayed message"
    )
    until(
        lambda: value(samples(server), "rocketmq_timer_dequeue_total", topic="orders") == 1,
        what="that of the timed one",
    )
    until(
        lambda: (
            "rocketmq_pop_revive_retry_messages_total" in (found := samples(server))
            and "rocketmq_pop_revive_out_message_total" in found
        ),
        what="the return of the popped one",
    )

    time.sleep(0.2)  # a scrape right after another one waits
    began = time.monotonic()
    found = samples(server)
    figure(f"a scrape of {sum(map(len, found.values()))} samples takes {(time.monotonic() - began) * 1000:.1f} ms")
    missing = [
        metric.name
        for metric in ALL
        if not found.get(metric.name + ("_count" if metric.kind is MetricKind.HISTOGRAM else ""))
    ]
    of_groups = [name for name in missing if name.startswith("orbitmq_group_")]
    assert of_groups == [metric.name for metric in ALL if metric.name.startswith("orbitmq_group_")], (
        "those are of members of replicated groups: test_group"
    )
    assert [name for name in missing if not name.startswith(("orbitmq_replica_", "orbitmq_group_"))] == [
        "orbitmq_access_denied_total",
        "orbitmq_nameserver_access_denied_total",
    ], "those are there only where callers are asked who they are: test_secrets, test_nameserver_metrics"
    assert {name for name in missing if name.startswith("orbitmq_replica_")} == {
        "orbitmq_replica_counted",
        "orbitmq_replica_lag_bytes",
        "orbitmq_replica_lag_seconds",
        "orbitmq_replica_acknowledged_offset_bytes",
        "orbitmq_replica_connected",
        "orbitmq_replica_silence_seconds",
    }, "those are there where a slave follows: test_replica_watching"

    assert promtool("check", "metrics", given=get(server.http_port, "/metrics")[1]) == ""
    assert value(found, "orbitmq_handshakes_total", outcome="done") == 1
    assert value(found, "orbitmq_http2_connection_errors_total", code="PROTOCOL_ERROR") == 1
    assert value(found, "orbitmq_bad_frames_total", role="grpc") == 1
    assert value(found, "orbitmq_handshakes_total", outcome="client_refused") == 0
    assert value(found, "orbitmq_certificate_expiry_seconds") > 86_400
    orders = {"topic": "orders", "is_system": "false"}
    assert value(found, "rocketmq_messages_in_total", message_type="normal", **orders) == 40
    assert value(found, "rocketmq_messages_in_total", message_type="delay", **orders) == 4
    assert value(found, "rocketmq_message_size_bucket", message_type="normal", le="1024.0", **orders) == 36
    assert value(found, "rocketmq_message_size_bucket", message_type="normal", le="4096.0", **orders) == 40
    assert value(found, "rocketmq_message_size_count", message_type="delay", **orders) == 4
    assert value(found, "rocketmq_messages_out_total", consumer_group="readers", **orders) == 20
    assert value(found, "rocketmq_throughput_out_total", consumer_group="readers", **orders) > 20 * 100
    assert value(found, "rocketmq_send_to_dlq_messages_total", consumer_group="readers") == 1
    lag = {"consumer_group": "readers", "topic": "orders", "is_retry": "false"}
    assert value(found, "rocketmq_consumer_lag_messages", **lag) == 32, "40 and the two delivered ones, 10 committed"
    assert value(found, "rocketmq_consumer_inflight_messages", **lag) == 10
    assert value(found, "rocketmq_consumer_ready_messages", **lag) == 22
    assert 0 < value(found, "rocketmq_consumer_lag_latency", **lag) < 60_000
    assert value(found, "rocketmq_consumer_connections", consumer_group="readers", consume_mode="push") == 1
    assert value(found, "orbitmq_delay_pending_messages", level="18") == 1
    assert value(found, "orbitmq_delay_lateness_seconds_count") == 1
    assert 0 <= value(found, "orbitmq_delay_lateness_seconds_sum") < 30
    assert value(found, "rocketmq_timer_enqueue_total", topic="orders") == 2
    assert value(found, "rocketmq_timing_messages", topic="orders") == 1
    assert value(found, "orbitmq_requests_total", role="broker", request="SEND_MESSAGE_V2") == 48
    workers = {"consumer_group": "workers", "topic": "orders"}
    assert value(found, "rocketmq_pop_revive_in_message_total", revive_message_type="CK", **workers) == 1
    assert value(found, "rocketmq_pop_revive_in_message_total", revive_message_type="ACK", **workers) == 1
    assert value(found, "rocketmq_pop_revive_out_message_total", revive_message_type="CK", **workers) == 1
    assert value(found, "rocketmq_pop_revive_retry_messages_total", put_status="PUT_OK", **workers) == 1
    assert value(found, "rocketmq_pop_offset_buffer_size") == 0
    assert value(found, "rocketmq_half_messages", topic="paid") == 1
    assert value(found, "rocketmq_commit_messages_total", topic="paid") == 1
    assert value(found, "rocketmq_rollback_messages_total", topic="paid") == 1
    assert value(found, "rocketmq_finish_message_latency_count", topic="paid") == 2
    assert value(found, "orbitmq_request_failures_total", role="broker", request="SEND_MESSAGE_V2") == 1
    assert value(found, "orbitmq_unsupported_requests_total", role="broker") == 1
    assert value(found, "orbitmq_store_writable") == 1
    assert value(found, "orbitmq_scrape_failures_total") == 0
    server.stop()


def test_dashboard_and_alerts_ask_for_what_a_server_shows(serve: Callable[..., ServedProcess]) -> None:
    server = serve()
    use_everything(server, server.client())
    follows = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": f"127.0.0.1:{server.name_port}"}
    slave = serve("slave", command="broker", settings=follows)
    text = "".join(get(one.http_port, "/metrics")[1].decode() for one in (server, slave))
    reader = reader_of_expressions()
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "orbitmq.json").read_text())
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    described = {line.split(" ")[2]: line.split(" ")[3] for line in text.splitlines() if line.startswith("# TYPE ")}
    shown = set(described)
    for name, kind in described.items():
        if kind == "histogram":
            shown |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    asked = set()
    for expression in (*reader.dashboard_expressions(dashboard), *reader.alert_expressions(rules)):
        asked |= reader.names_in(expression).metrics
    assert len(asked) > 40
    elsewhere = ("orbitmq_pipeline_", "orbitmq_group_")  # judged by test_served_process.py and test_group.py
    asked = {name for name in asked if not name.startswith(elsewhere)}
    assert asked - shown == set()
    planted = reader.names_in("rate(orbitmq_messages_lost_total[5m])").metrics
    assert planted - shown == {"orbitmq_messages_lost_total"}, "a metric that is missing is noticed"
    slave.stop()
    server.stop()


def test_ages_of_old_messages_are_read_from_the_disk(serve: Callable[..., ServedProcess]) -> None:
    """What an earlier process wrote is cold: the store's thread reads its store time."""
    server = serve()
    server.create_topic("orders")
    with server.client() as client:
        for _ in range(3):
            assert client.call(SEND, send_fields(), b"x").code == 0
        commit = {"consumerGroup": "readers", "topic": "orders", "queueId": "0", "commitOffset": "1"}
        assert client.call(RequestCode.HEART_BEAT, None, heartbeat("readers", "orders")).code == 0
        assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
    gone = {"consumer_group": "readers", "topic": "orders", "online": "false"}
    until(lambda: [one for one in samples(server)["rocketmq_consumer_lag_messages"] if gone.items() <= one[0].items()])
    assert value(samples(server), "rocketmq_consumer_lag_messages", **gone) == 2, "its only member has died"
    server.stop()
    again = serve()
    client = again.client()
    assert client.call(RequestCode.HEART_BEAT, None, heartbeat("readers", "orders")).code == 0
    found = samples(again)
    lag = {"consumer_group": "readers", "topic": "orders", "is_retry": "false"}
    assert value(found, "rocketmq_consumer_lag_messages", **lag) == 2
    assert 0 < value(found, "rocketmq_consumer_lag_latency", **lag) < 60_000
    assert 0 < value(found, "rocketmq_storage_message_reserve_time") < 60_000
    again.stop()


# --- readiness ----------------------------------------------------------------------------------------------------------


def test_a_broker_without_its_name_server_is_not_ready_and_becomes_so(serve: Callable[..., ServedProcess]) -> None:
    names = serve("names", command="nameserver")
    broker = serve("broker", command="broker", options=["--namesrv", f"127.0.0.1:{names.name_port}"])
    assert get(broker.http_port, "/readyz") == (200, b'{"status":"ready"}\n')
    assert get(names.http_port, "/readyz")[0] == 200
    found = samples(names)
    assert value(found, "orbitmq_nameserver_brokers", cluster="DefaultCluster", node_type="nameserver") == 1
    assert promtool("check", "metrics", given=get(names.http_port, "/metrics")[1]) == ""
    assert value(found, "orbitmq_requests_total", role="nameserver", request="REGISTER_BROKER") >= 1
    ports = (names.name_port, names.port)
    names.kill()
    until(lambda: get(broker.http_port, "/readyz")[0] == 503, what="the broker to notice")
    (reason,) = json.loads(get(broker.http_port, "/readyz")[1])["reasons"]
    assert reason["reason"] == "not_registered"
    names = serve("names again", command="nameserver", ports=ports)
    until(lambda: get(broker.http_port, "/readyz")[0] == 200, what="the registration")
    broker.stop()
    names.stop()


def test_a_second_server_on_the_machine_goes_without_the_default_port(serve: Callable[..., ServedProcess]) -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind(("127.0.0.1", 5_557))
            holder.listen()
        except OSError:
            assert socket.create_connection(("127.0.0.1", 5_557)).fileno() >= 0, "somebody else holds it: as good"
        name, broker = serve().name_port, serve("other")
        assert name != broker.name_port
        default = serve("default", default_http_port=True)
        assert "http " not in default.line
        assert len(default.log_lines("serves without metrics and health")) == 1
        default.stop()


def test_a_port_that_was_asked_for_must_be_had(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        done = command("nameserver", "--data", tmp_path, "--nameserver-port", 0, "--http-port", port)
    assert done.returncode == 6
    assert f"http cannot listen on 127.0.0.1:{port}" in done.stderr


# --- bad input ----------------------------------------------------------------------------------------------------------


def test_hostile_clients_of_the_http_port_harm_nobody(
    serve: Callable[..., ServedProcess], figure: Callable[[str], None]
) -> None:
    server = serve()
    server.create_topic("orders")
    stop = threading.Event()

    def rubbish() -> None:
        frame = encode(request(SEND, send_fields(), b"x", opaque=1))
        for data in (frame, b"\0" * 70_000, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 9_000, b"\r\n" * 40_000):
            try:
                with socket.create_connection(("127.0.0.1", server.http_port), timeout=5) as bad:
                    bad.sendall(data)
                    bad.recv(1_000)
            except OSError:
                continue

    def flood() -> None:
        while not stop.is_set():
            try:
                get(server.http_port, "/metrics")
            except (OSError, http.client.HTTPException):
                continue

    silent = [socket.create_connection(("127.0.0.1", server.http_port)) for _ in range(100)]
    threads = [threading.Thread(target=flood) for _ in range(4)] + [threading.Thread(target=rubbish) for _ in range(4)]
    cpu, began = server.cpu_s(), time.monotonic()
    for thread in threads:
        thread.start()
    with server.client() as client:
        for _ in range(300):
            assert client.call(SEND, send_fields(), b"x").code == 0
    until(lambda: time.monotonic() - began > 2.0, what="two seconds")
    used = (server.cpu_s() - cpu) / (time.monotonic() - began)
    stop.set()
    for thread in threads:
        thread.join()
    for one in silent:
        one.close()
    found = samples(server)
    scrapes = value(found, "orbitmq_scrapes_total") / (time.monotonic() - began)
    assert scrapes < 11, "scrapes that come too fast share one"
    assert value(found, "orbitmq_http_connections_total", outcome="bad_request") >= 4
    assert value(found, "orbitmq_connections", role="http") <= 64
    figure(f"scraped in a loop by four clients: {used:.0%} of a core, {scrapes:.1f} scrapes a second")
    server.stop()


def test_a_flood_of_bad_frames_does_not_flood_the_log(serve: Callable[..., ServedProcess]) -> None:
    server = serve()
    for _ in range(400):
        with RawClient(server.port) as bad:
            bad.write(b"\xff" * 64)
    server.create_topic("orders")
    found = samples(server)
    assert value(found, "orbitmq_bad_frames_total", role="broker") == 400
    assert value(found, "orbitmq_log_lines_left_out_total") >= 200
    server.stop()
    assert len(server.log_lines("sent a malformed frame")) < 200
    assert server.log_lines("more lines like this were left out")


# --- the log ------------------------------------------------------------------------------------------------------------


def test_the_log_can_be_json(serve: Callable[..., ServedProcess]) -> None:
    server = serve(options=["--log-format", "json", "--log-level", "WARNING", "--log-level", "store=INFO"])
    server.stop()
    said = [json.loads(line) for line in server.log().splitlines()]
    # That logger tells when the machine stood still.
    lines = [line for line in said if line["logger"] != "orbitmq.server.process.turn"]
    assert {line["logger"] for line in lines} == {"orbitmq.store"}
    assert lines[0]["message"] == "a new store"
    assert lines[0]["event"] == "recovery"


@pytest.mark.parametrize(
    ("option", "text"), [("--log-format", "xml"), ("--log-level", "LOUD"), ("--log-level", "Store=INFO")]
)
def test_a_wrong_form_or_level_stops_the_start(tmp_path: Path, option: str, text: str) -> None:
    done = command("serve", "--data", tmp_path / "d", option, text)
    assert done.returncode == 2
    assert text in done.stderr
