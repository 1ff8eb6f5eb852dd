"""OpenLineage events, against a server in this process; and a server that harms nobody."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openlineage.client", reason="openlineage-python comes with the extra lineage")

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import SERVICE_LINEAGE_EVENTS_MAX
from orbitmq.spark.pipelines.serving.lineage import Dataset, SentLineage, datasets, table_dataset
from orbitmq.spark.pipelines.serving.service_file import ServicePart, read_service_file

FILE = """
[service]
state = "/s"
[defaults]
name-server = "ns:9876"
[[stream]]
name = "typed"
sink = "table"
topic = ["orders", "payments"]
to = "s3://lake/typed/orders"
quarantine = "/data/broken"
options = { payload = "json", payloadSchema = "id bigint" }
[[stream]]
name = "copy"
sink = "topic"
topic-pattern = "orders.*"
to = "copy"
[[job]]
name = "again"
pipeline = "redrive"
group = "billing"
since = "1d"
every = "1h"
[[job]]
name = "tidy"
pipeline = "compact"
archive = "/data/archive"
every = "1h"
[[job]]
name = "figures"
pipeline = "report"
archive = "/data/archive"
to = "/data/report"
every = "1h"
"""
LIMIT_S = 30


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, ServicePart]:
    file = tmp_path / "lake.toml"
    file.write_text(FILE)
    return {part.name: part for part in read_service_file(file).parts}


class Marquez:
    """Takes events; answers with `code`."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.code = 201
        marquez = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                marquez.events.append({"path": self.path, **json.loads(content)})
                self.send_response(marquez.code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *words: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def marquez() -> Iterator[Marquez]:
    server = Marquez()
    yield server
    server.server.shutdown()
    server.server.server_close()


def test_a_run_is_told_with_its_datasets(marquez: Marquez, parts: dict[str, ServicePart]) -> None:
    lineage = SentLineage(marquez.url, "lake", lambda: pytest.fail("dropped"))
    run = lineage.begun(parts["typed"])
    lineage.failed(parts["typed"], run, "the disk is full")
    other = lineage.begun(parts["tidy"])
    lineage.completed(parts["tidy"], other)
    lineage.close()
    assert [(event["eventType"], event["job"]["name"], event["run"]["runId"]) for event in marquez.events] == [
        ("START", "lake.typed", run),
        ("FAIL", "lake.typed", run),
        ("START", "lake.tidy", other),
        ("COMPLETE", "lake.tidy", other),
    ]
    start, fail = marquez.events[:2]
    assert start["path"] == "/api/v1/lineage"
    assert [(one["namespace"], one["name"]) for one in start["inputs"]] == [
        ("rocketmq://ns:9876", "orders"),
        ("rocketmq://ns:9876", "payments"),
    ]
    assert [(one["namespace"], one["name"]) for one in start["outputs"]] == [
        ("s3://lake", "typed/orders"),
        ("file", "/data/broken"),
    ]
    assert fail["run"]["facets"]["errorMessage"]["message"] == "the disk is full"


def test_a_server_that_refuses_or_is_away_harms_nobody(marquez: Marquez, parts: dict[str, ServicePart]) -> None:
    dropped: list[int] = []
    marquez.code = 500
    lineage = SentLineage(marquez.url, "lake", lambda: dropped.append(1))
    lineage.completed(parts["tidy"], lineage.begun(parts["tidy"]))
    lineage.close()
    assert len(dropped) == 2
    lineage = SentLineage("http://127.0.0.1:1", "lake", lambda: dropped.append(1))
    lineage.completed(parts["tidy"], lineage.begun(parts["tidy"]))
    lineage.close()
    assert len(dropped) == 4


def test_the_password_of_the_server_is_in_no_log(
    marquez: Marquez, parts: dict[str, ServicePart], caplog: pytest.LogCaptureFixture
) -> None:
    marquez.code = 403
    lineage = SentLineage(marquez.url.replace("//", "//lake:hidden@"), "lake", lambda: None)
    lineage.begun(parts["tidy"])
    lineage.close()
    assert "the lineage server took no event: 403" in caplog.text
    assert marquez.url in caplog.text, "which server it was"
    assert "hidden" not in caplog.text


def test_an_address_that_the_client_refuses_is_named_without_its_password() -> None:
    with pytest.raises(ConfigurationError, match="lineage-url is no URL") as caught:
        SentLineage("http://lake:hidden@[::1", "lake", lambda: None)
    assert "hidden" not in str(caught.value)


def test_what_cannot_be_made_is_counted_and_never_raised(
    marquez: Marquez, parts: dict[str, ServicePart], monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[int] = []
    lineage = SentLineage(marquez.url, "lake", lambda: dropped.append(1))
    monkeypatch.setitem(sys.modules, "openlineage.client.generated.error_message_run", None)
    lineage.failed(parts["tidy"], "run", "the disk is full")
    lineage.close()
    assert dropped == [1]


def test_a_slow_server_costs_bounded_memory_and_no_time(marquez: Marquez, parts: dict[str, ServicePart]) -> None:
    dropped: list[int] = []
    lineage = SentLineage(marquez.url, "lake", lambda: dropped.append(1))
    held = threading.Event()
    lineage._client.emit = lambda event: held.wait(LIMIT_S)  # type: ignore[method-assign]
    began = time.monotonic()
    for _ in range(SERVICE_LINEAGE_EVENTS_MAX + 10):
        lineage.begun(parts["tidy"])
    assert time.monotonic() - began < LIMIT_S
    assert 8 <= len(dropped) <= 10
    held.set()


def test_what_parts_read_and_write(parts: dict[str, ServicePart]) -> None:
    def of(name: str) -> tuple[list[Dataset], list[Dataset]]:
        return datasets(parts[name].does, parts[name].settings(2 * 86_400_000))

    archive = Dataset("file", "/data/archive")
    assert of("copy") == ([Dataset("rocketmq://ns:9876", "orders.*")], [Dataset("rocketmq://ns:9876", "copy")])
    assert of("again") == ([Dataset("rocketmq://ns:9876", "%DLQ%billing")], [])
    assert of("tidy") == ([archive], [archive])
    assert of("figures") == ([archive], [Dataset("file", "/data/report")])
    assert table_dataset("s3://lake") == Dataset("s3://lake", "/")
