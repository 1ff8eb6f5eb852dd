"""More message queues than descriptors: a server with few of them sends, stops in order, and starts again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from server_process import RawClient, ServedProcess, pull_fields, send_fields

from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.commands import RequestCode

DESCRIPTORS = 300
TOPICS, QUEUES = 40, 8


def send_everywhere(client: RawClient, body: bytes) -> None:
    for number in range(TOPICS):
        for queue_id in range(QUEUES):
            answer = client.call(RequestCode.SEND_MESSAGE_V2, send_fields(f"t{number}", d=QUEUES, e=queue_id), body)
            assert answer.code == 0, answer.remark


def is_everywhere(client: RawClient, bodies: list[bytes]) -> None:
    for number in range(TOPICS):
        for queue_id in range(QUEUES):
            answer = client.call(RequestCode.PULL_MESSAGE, pull_fields(f"t{number}", queue_id))
            assert answer.code == 0, answer.remark
            assert [bytes(record.body) for record in iter_records(bytes(answer.body))] == bodies


def test_a_server_with_fewer_descriptors_than_queues(serve: Callable[..., ServedProcess]) -> None:
    """Today's fault: every send answered 14, SIGTERM left a crashed store, and the restart failed."""
    limited = {"shell_limits": f"ulimit -n {DESCRIPTORS}"}
    server = serve(**limited)
    with server.client() as client:
        send_everywhere(client, b"first")
        is_everywhere(client, [b"first"])
        send_everywhere(client, b"second")
        assert len(os.listdir(f"/proc/{server.pid}/fd")) < DESCRIPTORS  # noqa: PTH208
    server.stop()
    assert not (server.data / "abort").exists()
    assert not server.log_lines("ERROR"), server.log_lines("ERROR")
    again = serve(**limited)
    with again.client() as client:
        is_everywhere(client, [b"first", b"second"])
        send_everywhere(client, b"third")
    again.kill()
    last = serve(**limited)
    with last.client() as client:
        is_everywhere(client, [b"first", b"second", b"third"])
        crowd = [last.client() for _ in range(DESCRIPTORS)]  # as many as there are descriptors: some are closed at once
        send_everywhere(client, b"in a crowd")
        for one in crowd:
            one.close()
    assert Path(f"/proc/{last.pid}").exists()
    last.stop()
