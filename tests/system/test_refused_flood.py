"""A flood of requests that nobody has signed right takes nothing from those who sign right, from the same address or another."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from server_process import RawClient, ServedProcess, clean_environment, send_fields, until

from orbitmq.limits.access import FAILURES_UNSLOWED_MAX, REFUSED_TOGETHER_MAX
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.signing import Credentials

RIGHT = Credentials("the-shop", "secret-of-the-shop")
SENDS = 400
ACCOUNT = f"accounts: [{{accessKey: {RIGHT.access_key}, secretKey: {RIGHT.secret_key}, admin: true}}]"
USER = json.dumps({"username": RIGHT.access_key, "password": RIGHT.secret_key})


def gates(directory: Path) -> dict[str, Mapping[str, object]]:
    """Settings of both kinds of access control."""
    (directory / "accounts").mkdir()
    (directory / "accounts" / "plain_acl.yml").write_text(ACCOUNT)
    return {
        "users": {"authenticationEnabled": "true", "initAuthenticationUser": USER},
        "accounts": {"aclEnable": "true", "aclConfigPath": directory / "accounts"},
    }


class RightCaller(threading.Thread):
    """Sends one message after the other; ready for the flood once the first is answered."""

    def __init__(self, server: ServedProcess, source: str) -> None:
        super().__init__()
        self.codes: Counter[int] = Counter()
        self.longest_s = 0.0
        self._server, self._source = server, source

    def run(self) -> None:
        with RawClient(self._server.port, source=self._source) as client:
            for _ in range(SENDS):
                began = time.monotonic()
                answer = client.call(RequestCode.SEND_MESSAGE_V2, RIGHT.signed(send_fields("orders"), b"x"), b"x")
                self.codes[answer.code] += 1
                self.longest_s = max(self.longest_s, time.monotonic() - began)


def refused_count(server: ServedProcess) -> int:
    """Requests of unknown callers so far, as the metrics say."""
    password = base64.b64encode(f"{RIGHT.access_key}:{RIGHT.secret_key}".encode()).decode()
    asked = urllib.request.Request(
        f"http://127.0.0.1:{server.http_port}/metrics", headers={"Authorization": f"Basic {password}"}
    )
    with urllib.request.urlopen(asked, timeout=180) as answer:
        text = answer.read().decode()
    return sum(int(float(count)) for count in re.findall(r"access_denied_total{.*wrong_signature.*} (\S+)", text))


@contextlib.contextmanager
def flooded(server: ServedProcess, counts: dict[str, int]) -> Iterator[None]:
    """A flood from its first refused requests to the end of the block, with what it has to say of itself."""
    flood = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("refused_flood.py")), str(server.port), RIGHT.access_key],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_environment(),
    )  # fmt: skip
    try:
        until(lambda: refused_count(server) >= FAILURES_UNSLOWED_MAX + 20, what="a flood")
        yield
        output, _ = flood.communicate(timeout=180)
        counts.update(json.loads(output))
    finally:
        flood.kill()
        flood.communicate()


@pytest.mark.parametrize("kind", ["users", "accounts"])
def test_right_callers_are_never_told_to_come_back_while_wrong_ones_flood(
    serve: Callable[..., ServedProcess], tmp_path: Path, figure: Callable[[str], None], kind: str
) -> None:
    server = serve(settings=gates(tmp_path)[kind])
    callers = [RightCaller(server, source) for source in ("127.0.0.1", "127.0.0.2")]
    counts: dict[str, int] = {}
    with flooded(server, counts):
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        counts["refused"] = refused_count(server)
    longest_s = max(caller.longest_s for caller in callers)
    figure(f"{kind}: {counts}, right callers waited {longest_s:.3f} s at most")
    assert [caller.codes for caller in callers] == [{0: SENDS}, {0: SENDS}]
    assert longest_s < 20
    assert counts["sent_bytes"] > 10_000_000, "that was no flood"
    assert counts["refused"] <= most_refused(counts), "of a connection that waits something was handled"
    assert server.rss_mb() < 250
    server.stop()


def most_refused(counts: Mapping[str, int]) -> int:
    """What a flood may have refused: a few at once, and of each connection one that waits, with what was sent before its answer left."""
    return FAILURES_UNSLOWED_MAX + (REFUSED_TOGETHER_MAX + 2) * counts["opened_count"]


def test_a_server_that_goes_on_reading_whom_it_refuses_is_found(
    serve: Callable[..., ServedProcess], tmp_path: Path
) -> None:
    """The planted bug: a refusal is answered at once."""
    program = """
from orbitmq.access.late_answers import LateAnswers
LateAnswers.send = lambda self, connection, answer, wait_ms: answer and answer()
from orbitmq.cli.main import main
main()
"""
    server = serve(settings=gates(tmp_path)["users"], program=("-c", program))
    counts: dict[str, int] = {}
    with flooded(server, counts):
        until(lambda: refused_count(server) > 30_000)
    assert refused_count(server) > most_refused(counts)
