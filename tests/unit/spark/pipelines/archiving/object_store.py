"""S3 as `moto` plays it, in a process of its own: it lists requests, and fails those that a test names.

It cannot be this process: delta-rs holds the interpreter's lock while it waits for answers.

Rules of this file
1. One request at a time is carried out, so a version that two put at once is made once, as S3 promises.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

BUCKET: Final = "lake"


class Fault(NamedTuple):
    """What is answered to requests whose method and path match, from the one of that number on. done: the work is done before.
    times: how often; 0: without end."""

    status: str
    code: str
    match: str = ""
    begin: int = 0
    times: int = 0
    done: bool = False


EXPIRED: Final = Fault("403 Forbidden", "ExpiredToken")
VANISHED: Final = Fault("404 Not Found", "NoSuchBucket")
UNAVAILABLE: Final = Fault("503 Service Unavailable", "ServiceUnavailable")


class ObjectStore:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.address = f"http://127.0.0.1:{int(process.stdout.readline())}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
        }  # fmt: skip

    def fresh(self) -> None:
        """An empty bucket, no fault, and no request was made."""
        self._ask("/moto-api/reset", {})
        self.fail(None)
        urllib.request.urlopen(urllib.request.Request(f"{self.address}/{BUCKET}", method="PUT")).close()
        self._ask("/_test/fresh", {})

    def fail(self, fault: Fault | None) -> None:
        self._ask("/_test/fault", fault._asdict() if fault is not None else {})

    def requests(self) -> list[str]:
        """Since `fresh`, as method and path."""
        found: list[str] = self._ask("/_test/requests", {})
        return found

    def _ask(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read() or b"null")


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    try:
        yield ObjectStore(process)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


# --- the other process


class _Server:
    def __init__(self, application: Any) -> None:
        self._application = application
        self._lock = threading.Lock()
        self._requests: list[str] = []
        self._fault: Fault | None = None
        self._failed = 0

    def answer(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environment["PATH_INFO"]
        with self._lock:
            if path.startswith("/_test/"):
                return self._told(path, environment, start)
            if path.startswith("/moto-api/"):
                return list(self._application(environment, start))
            text = f"{environment['REQUEST_METHOD']} {path}?{environment['QUERY_STRING']}"
            self._requests.append(text)
            if (fault := self._met(text)) is None:
                return list(self._application(environment, start))
            if fault.done:
                list(self._application(environment, lambda *_: None))
            start(fault.status, [("Content-Type", "application/xml")])
            return [f"<Error><Code>{fault.code}</Code><Message>as a test has it</Message></Error>".encode()]

    def _met(self, text: str) -> Fault | None:
        fault = self._fault
        if fault is None or len(self._requests) <= fault.begin or not re.search(fault.match, text):
            return None
        self._failed += 1
        return fault if not fault.times or self._failed <= fault.times else None

    def _told(self, path: str, environment: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        body = json.loads(environment["wsgi.input"].read(int(environment["CONTENT_LENGTH"])))
        if path.endswith("fault"):
            self._fault, self._failed = Fault(**body) if body else None, 0
        elif path.endswith("fresh"):
            self._requests.clear()
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(self._requests if path.endswith("requests") else None).encode()]


def _serve() -> None:
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = _Server(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application.answer, threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve()
