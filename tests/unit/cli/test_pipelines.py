"""What commands of pipelines hand on: the cluster is that of the context, unless a setting makes do without one."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from scripted_server import Ran

from orbitmq.spark.pipelines.pipeline_file import Step

Run = Callable[..., Ran]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """The arguments of each step that would have run."""
    found: list[Mapping[str, Any]] = []

    def run_for_command(steps: tuple[Step, ...], **_: object) -> bool:
        found.extend(step.arguments for step in steps)
        return True

    monkeypatch.setattr("orbitmq.spark.pipelines.starting.run_for_command", run_for_command)
    return found


@pytest.mark.parametrize(
    ("words", "name_server"),
    [
        ("report --to /r", "127.0.0.1:9876"),
        ("report --to /r --archive /a", None),
        ("report --to /r --store /s", None),
        ("report --to /r --archive /a --name-server ns:1", "ns:1"),
        ("archive --to /a --topic t", "127.0.0.1:9876"),
        ("archive --to /a --store /s", None),
    ],
)
def test_a_cluster_is_asked_where_nothing_spares_it(
    orbitmq: Run, asked: list[Mapping[str, Any]], words: str, name_server: str | None
) -> None:
    ran = orbitmq("pipeline", *words.split())
    assert (ran.code, ran.err) == (0, "")
    assert [arguments.get("name_server") for arguments in asked] == [name_server]


def test_how_to_connect_is_that_of_options_and_context(
    orbitmq: Run, asked: list[Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORBITMQ_ACCESS_KEY", "")  # the command sets them for its tasks; they are put back afterwards
    monkeypatch.setenv("ORBITMQ_SECRET_KEY", "")
    words = ("--tls", "--tls-trusted", "/ca", "--access-key", "ops")
    orbitmq("context", "add", "a", "ns:1", *words, "--secret-command", "pass show mq")
    assert orbitmq("pipeline", "report", "--to", "/r", "--no-tls-verify").code == 0
    [arguments] = asked
    connecting = {name: value for name, value in arguments.items() if name.startswith(("tls", "secret", "access"))}
    assert connecting == {
        "access_key": "ops", "secret_command": "pass show mq", "tls": True, "tls_trusted": "/ca", "tls_verify": False
    }  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO("hush\n"))
    orbitmq("context", "add", "b", "ns:1", "--access-key", "me", "--use")
    assert orbitmq("pipeline", "report", "--to", "/r").code == 0
    assert "hush" not in str(asked)
    assert (os.environ["ORBITMQ_ACCESS_KEY"], os.environ["ORBITMQ_SECRET_KEY"]) == ("me", "hush")
