"""OpenLineage events: which stream or job read which topics and tables, and wrote which.

A run of a stream goes from its start to its end or failure, one of a job is a run. Each is a START, then a COMPLETE or a FAIL.

Rules of this file
1. What happens to an event never reaches a stream or a job: a thread of its own sends, what does not fit or does not arrive is counted.
2. Topics are datasets `rocketmq://<name servers>` and their name, tables `file` and their path, or the bucket's URL and the path.
"""

from __future__ import annotations

import datetime
import logging
import queue
import re
import threading
import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import SERVICE_LINEAGE_EVENTS_MAX, SERVICE_LINEAGE_TIMEOUT_MS
from orbitmq.protocol.names import DLQ_PREFIX
from orbitmq.release import VERSION
from orbitmq.spark.pipelines.serving.service_file import ServicePart

logger = logging.getLogger("orbitmq.service")

PRODUCER: Final = f"orbitmq/{VERSION}"
_ACCOUNT: Final = re.compile(r"//[^/\s]*@")
"""Name and password in a URL, which errors show."""
_TABLES_IN: Final = ("archive", "table")
"""Settings that name a table that is read."""


class Dataset(NamedTuple):
    """As OpenLineage names it."""

    namespace: str
    name: str


class Lineage:
    """Where runs are told; this one tells nobody, where no server is named. None of its methods raises."""

    def begun(self, part: ServicePart) -> str:
        """The id of the run."""
        return ""

    def completed(self, part: ServicePart, run: str) -> None:
        pass

    def failed(self, part: ServicePart, run: str, reason: str) -> None:
        pass

    def close(self) -> None:
        """Send what waits, for a moment."""


def datasets(does: str, settings: Any) -> tuple[list[Dataset], list[Dataset]]:
    """What a part reads and writes, by its settings. Topics of a pattern are one dataset of the pattern's name. Pure."""
    said: Callable[[str], Any] = lambda name: getattr(settings, name, None)  # noqa: E731
    source = said("from_name_server") or said("name_server")
    topics = [*_texts(said("topic")), *_texts(said("topic_pattern"))]
    archive = [table_dataset(place) for name in _TABLES_IN for place in _texts(said(name))]
    read = [_topic(source, name) for name in topics]
    to = said("to")
    target = said("to_name_server") or said("name_server")
    match does:
        case "archive" | "table":
            stores = [Dataset("file", place) for place in _texts(said("store"))]
            return (stores or read), [table_dataset(place) for place in _texts(to) + _texts(said("quarantine"))]
        case "topic":
            return read, [_topic(target, to)]
        case "replay" | "changes":
            return (archive or read), [_topic(target, to)]
        case "redrive":
            return archive or [_topic(source, DLQ_PREFIX + said("group"))], [
                _topic(target, name) for name in _texts(to)
            ]
        case "schedule":
            inputs = [table_dataset(place) for place in _texts(said("input"))]
            return inputs, [_topic(target, name) for name in _texts(said("topic"))]
        case "compact" | "vacuum":
            return archive, archive
        case _:
            return (archive or read), [table_dataset(place) for place in _texts(to)]


def table_dataset(place: str) -> Dataset:
    """A directory or URL as a dataset."""
    parts = urlsplit(place)
    if parts.scheme in ("", "file"):
        return Dataset("file", parts.path)
    return Dataset(f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/") or "/")


def _topic(name_servers: str | None, name: str) -> Dataset:
    return Dataset(f"rocketmq://{name_servers or ''}", name)


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


class SentLineage(Lineage):
    """To a server. ConfigurationError where the client's package is missing."""

    def __init__(self, url: str, service: str, dropped: Callable[[], None]) -> None:
        try:
            from openlineage.client import OpenLineageClient
            from openlineage.client.transport.http import HttpConfig, HttpTransport
        except ImportError as error:
            raise ConfigurationError(
                f"lineage-url is given, and {error.name} cannot be imported", remedy="pip install 'orbitmq[lineage]'"
            ) from error
        config = HttpConfig.from_dict(
            {"url": url, "timeout": SERVICE_LINEAGE_TIMEOUT_MS / 1000, "retry": {"total": 0, "connect": 0, "read": 0}}
        )
        try:
            self._client = OpenLineageClient(transport=HttpTransport(config))
        except ValueError as error:  # its text has all of the URL
            raise ConfigurationError(
                "lineage-url is no URL of a server", remedy="write it as http://HOST:PORT or https://HOST"
            ) from error
        self._service = service
        self._dropped = dropped
        self._events: queue.Queue[Any] = queue.Queue(SERVICE_LINEAGE_EVENTS_MAX)
        self._is_away = False
        self._thread = threading.Thread(target=self._send, name="lineage", daemon=True)
        self._thread.start()

    def begun(self, part: ServicePart) -> str:
        run = str(uuid.uuid4())
        self._put("START", part, run)
        return run

    def completed(self, part: ServicePart, run: str) -> None:
        self._put("COMPLETE", part, run)

    def failed(self, part: ServicePart, run: str, reason: str) -> None:
        self._put("FAIL", part, run, reason)

    def close(self) -> None:
        try:
            self._events.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(SERVICE_LINEAGE_TIMEOUT_MS / 1000)

    def _put(self, kind: str, part: ServicePart, run: str, reason: str | None = None) -> None:
        try:
            self._events.put_nowait(self._event(kind, part, run, reason))
        except queue.Full:
            self._dropped()
        except Exception:
            self._dropped()
            logger.exception("an event of %s for the lineage server could not be made", part.name)

    def _event(self, kind: str, part: ServicePart, run: str, reason: str | None) -> Any:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, RunEvent, RunState
        from openlineage.client.event_v2 import Run as LineageRun
        from openlineage.client.generated.error_message_run import ErrorMessageRunFacet

        facets: dict[str, Any] = {}
        if reason is not None:
            facets["errorMessage"] = ErrorMessageRunFacet(message=reason, programmingLanguage="python")
        now_ms = SystemClock().now_ms()
        inputs, outputs = datasets(part.does, part.settings(now_ms))
        return RunEvent(
            eventType=RunState(kind),
            eventTime=datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC).isoformat(),
            run=LineageRun(runId=run, facets=facets),
            job=Job(namespace="orbitmq", name=f"{self._service}.{part.name}"),
            producer=PRODUCER,
            inputs=[InputDataset(namespace=one.namespace, name=one.name) for one in inputs],
            outputs=[OutputDataset(namespace=one.namespace, name=one.name) for one in outputs],
        )

    def _send(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._client.emit(event)
                self._is_away = False
            except Exception as error:
                self._dropped()
                if not self._is_away:
                    logger.warning("the lineage server took no event: %s", _ACCOUNT.sub("//", str(error)))
                self._is_away = True
