"""Contexts: which cluster is meant, and a file that is never half written."""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_server import Ran, ScriptedServer

from orbitmq.cli.asking import contexts
from orbitmq.cli.asking.contexts import Context, Contexts
from orbitmq.client.connect_settings import ConnectSettings
from orbitmq.errors import ConfigurationError, NotFoundError
from orbitmq.limits.cli import CLI_CONTEXT_FILE_BYTES_MAX, CLI_CONTEXTS_MAX
from orbitmq.protocol.remoting.bodies import TopicList
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.signing import Credentials

Run = Callable[..., Ran]
STORED = Contexts(
    current="b", contexts={"a": Context(name_servers="a:1"), "b": Context(name_servers="b:2", timeout_ms=77)}
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "orbitmq" / "contexts.toml"
    contexts.save(file, STORED)
    return file


def test_what_was_saved_is_loaded(path: Path) -> None:
    assert contexts.load(path) == STORED
    odd = Context(name_servers="c:3", description='quotes " and \\ and ü')
    contexts.save(path, STORED.with_context("c", odd, use=True))
    assert contexts.load(path).get("c") == odd
    assert contexts.load(path).current == "c"


def test_only_the_owner_may_read_the_file(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [child.name for child in path.parent.iterdir()] == ["contexts.toml"]


def test_a_failed_write_leaves_the_old_file_and_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("orbitmq.cli.asking.contexts.os.fsync", full)
    with pytest.raises(ConfigurationError, match="No space left"):
        contexts.save(path, Contexts())
    monkeypatch.undo()
    assert contexts.load(path) == STORED
    assert len(list(path.parent.iterdir())) == 1


STRONGEST_FIRST = [
    ({"name_servers": "flag:1"}, {}, "flag:1", "--name-server"),
    ({"context": "a"}, {}, "a:1", "context a (--context)"),
    ({}, {"ORBITMQ_NAMESRV": "ours:1"}, "ours:1", "ORBITMQ_NAMESRV"),
    ({}, {"ORBITMQ_CONTEXT": "a"}, "a:1", "context a (ORBITMQ_CONTEXT)"),
    ({}, {"NAMESRV_ADDR": "theirs:1"}, "theirs:1", "NAMESRV_ADDR"),
    ({}, {}, "b:2", "context b (context in use)"),
]


@pytest.mark.parametrize("place", range(len(STRONGEST_FIRST)))
def test_the_stronger_of_two_decides(place: int, path: Path) -> None:
    """Each is given together with all weaker ones of the environment."""
    flags, _, name_servers, source = STRONGEST_FIRST[place]
    environment: dict[str, str] = {}
    for _, variables, _, _ in STRONGEST_FIRST[place:]:
        environment.update(variables)
    target = contexts.resolve(flags.get("name_servers"), flags.get("context"), None, environment, path)
    assert (target.name_servers, target.source) == (name_servers, source)


def test_without_anything_it_is_this_machine(tmp_path: Path) -> None:
    target = contexts.resolve(None, None, None, {}, tmp_path / "none.toml")
    assert (target.name_servers, target.timeout_ms, target.source) == ("127.0.0.1:9876", 5_000, "default")


def test_the_time_limit_of_a_flag_beats_that_of_the_context(path: Path) -> None:
    assert contexts.resolve(None, "b", None, {}, path).timeout_ms == 77
    assert contexts.resolve(None, "b", 5, {}, path).timeout_ms == 5


def test_a_broken_file_does_not_matter_where_it_is_not_asked(path: Path) -> None:
    path.write_text("= nonsense")
    assert contexts.resolve("flag:1", None, None, {}, path).name_servers == "flag:1"
    with pytest.raises(ConfigurationError):
        contexts.resolve(None, None, None, {}, path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("= nonsense", "Invalid"),
        ('current = "x"', "names no context"),
        ('[contexts.a]\nname_servers = "a:1"\ncolour = "red"', "colour"),
        ("[contexts.a]", "name_servers"),
        ('[contexts.a]\nname_servers = "no port"', "context 'a'"),
        ('[contexts.a]\nname_servers = "a:1"\ntimeout_ms = 0', "timeout_ms"),
        ("[contexts.a]\nname_servers = 3", "str"),
    ],
)
def test_a_file_that_cannot_be_understood_is_named_and_kept(path: Path, text: str, says: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=says) as caught:
        contexts.load(path)
    assert str(path) in str(caught.value)
    assert path.read_text() == text


def test_bounds(path: Path) -> None:
    path.write_text("#" * (CLI_CONTEXT_FILE_BYTES_MAX + 1))
    with pytest.raises(ConfigurationError, match="longer than"):
        contexts.load(path)
    full = Contexts(contexts={f"c{number}": Context(name_servers="a:1") for number in range(CLI_CONTEXTS_MAX)})
    with pytest.raises(ConfigurationError, match="already"):
        full.with_context("one-more", Context(name_servers="a:1"), use=False)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 65])
def test_names_are_bare(name: str) -> None:
    with pytest.raises(ConfigurationError, match="no name"):
        Contexts().with_context(name, Context(name_servers="a:1"), use=False)


def test_a_context_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(NotFoundError, match="known are: a, b"):
        STORED.get("c")


def test_the_commands(orbitmq: Run, tmp_path: Path) -> None:
    assert orbitmq("context", "add", "one", "127.0.0.1:1").code == 0
    assert orbitmq("context", "add", "two", "127.0.0.1:2", "--timeout-ms", 9).code == 0
    assert orbitmq("context", "add", "two", "127.0.0.1:3").code == 2
    assert orbitmq("context", "add", "two", "nonsense", "--replace").code == 2
    rows = json.loads(orbitmq("context", "list", "--json").out)
    assert [(row["context"], row["in_use"]) for row in rows] == [("one", True), ("two", False)]
    assert orbitmq("context", "use", "two").code == 0
    shown = json.loads(orbitmq("context", "show", "--json").out)
    assert (shown["name_servers"], shown["timeout_ms"]) == ("127.0.0.1:2", 9)
    assert shown["decided_by"] == "context two (context in use)"
    assert shown["file"] == str(tmp_path / "configuration" / "orbitmq" / "contexts.toml")
    assert orbitmq("context", "remove", "two").code == 0
    assert json.loads(orbitmq("context", "show", "--json").out)["decided_by"] == "default"
    assert orbitmq("context", "use", "two").code == 5


def test_every_cluster_command_takes_a_context(orbitmq: Run, server: ScriptedServer) -> None:
    server.on(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList(topic_list=["t"]).encode())
    orbitmq("context", "add", "dead", "127.0.0.1:1")
    orbitmq("context", "add", "live", server.address)
    assert json.loads(orbitmq("topic", "list", "--all", "--context", "live", "--json").out) == [{"topic": "t"}]
    assert orbitmq("--context", "live", "topic", "list", "--all").code == 0
    assert orbitmq("topic", "list", "--timeout-ms", 500).code == 3
    both = orbitmq("topic", "list", "--context", "live", "-n", server.address)
    assert (both.code, "two clusters" in both.err) == (2, True)
    assert orbitmq("topic", "list", "--context", "none").code == 5


# --- who asks

SIGNED = '[contexts.a]\nname_servers = "a:1"\naccess_key = "ops"\n'


def test_a_context_says_who_asks(path: Path) -> None:
    path.write_text(SIGNED + 'secret_key = "hush"\n')
    written = contexts.resolve(None, "a", None, {}, path)
    assert (written.access_key, written.credentials()) == ("ops", Credentials("ops", "hush"))
    assert written.settings == ConnectSettings()
    path.write_text(SIGNED + "secret_command = \"printf 'hush\\\\nmore'\"\n")
    printed = contexts.resolve(None, "a", None, {}, path)
    assert (printed.access_key, printed.credentials()) == ("ops", Credentials("ops", "hush"))


def test_the_environment_is_stronger_than_the_context(path: Path) -> None:
    path.write_text(SIGNED + 'secret_command = "false"\n')
    environment = {"ORBITMQ_ACCESS_KEY": "me", "ORBITMQ_SECRET_KEY": "mine", "ORBITMQ_SECURITY_TOKEN": "lent"}
    for flags in ({"name_servers": "b:1", "context": None}, {"name_servers": None, "context": "a"}):
        target = contexts.resolve(**flags, timeout_ms=None, environment=environment, path=path)
        assert target.credentials() == Credentials("me", "mine", "lent")


def test_of_tls_each_setting_is_the_strongest_that_is_given(path: Path) -> None:
    path.write_text('[contexts.a]\nname_servers = "a:1"\ntls = true\ntls_trusted = "c"\ntls_certificate = "c"\n')
    environment = {"ORBITMQ_TLS_TRUSTED": "e", "ORBITMQ_TLS_CERTIFICATE": "e"}
    target = contexts.resolve(None, "a", None, environment, path, tls={"tls_certificate": "f"})
    assert target.settings == ConnectSettings(tls=True, tls_trusted="e", tls_certificate="f")
    assert contexts.resolve(None, "a", None, environment, path, tls={"tls": False}).settings == ConnectSettings()
    named = contexts.resolve("b:1", None, None, {"ORBITMQ_TLS": "true"}, path, tls={"tls_verify": False})
    assert named.settings == ConnectSettings(tls=True, tls_verify=False)
    with pytest.raises(ConfigurationError, match="TLS is not used"):
        contexts.resolve("b:1", None, None, environment, path)
    with pytest.raises(ConfigurationError, match="TLS is not used"):
        Contexts().with_context("a", Context(name_servers="a:1", tls_trusted="c"), use=False)


def test_the_command_keeps_how_to_connect(orbitmq: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("--tls", "--tls-trusted", "ca.crt", "--no-tls-verify", "--access-key", "ops", "--secret-file", "secret")
    assert orbitmq("context", "add", "one", "127.0.0.1:1", *words).code == 0
    shown = json.loads(orbitmq("context", "show", "--json").out)
    assert (shown["tls"], shown["tls_trusted"], shown["tls_verify"]) == (True, str(tmp_path / "ca.crt"), False)
    assert (shown["access_key"], shown["secret_file"]) == ("ops", str(tmp_path / "secret"))
    assert json.loads(orbitmq("context", "list", "--json").out)[0]["tls"] is True
    assert orbitmq("context", "add", "two", "127.0.0.1:1", "--tls-trusted", "ca.crt").code == 2
    missing = orbitmq("topic", "list")
    assert (missing.code, "secret_file" in missing.err) == (2, True)


@pytest.mark.parametrize(
    "more", ["", 'secret_key = "x"\nsecret_command = "y"\n', 'secret_key = ""\n'], ids=["none", "both", "empty"]
)
def test_an_access_key_goes_with_one_secret(path: Path, more: str) -> None:
    path.write_text(SIGNED + more)
    with pytest.raises(ConfigurationError, match="access_key goes with"):
        contexts.load(path)


@pytest.mark.parametrize("command", ["exit 3", "true", "printf '\\\\377'"])
def test_a_command_without_a_secret_is_named_and_its_output_is_not(path: Path, command: str) -> None:
    path.write_text(SIGNED + f'secret_command = "{command}"\n')
    with pytest.raises(ConfigurationError, match=r"secret_command|secret_key must be"):
        contexts.resolve(None, "a", None, {}, path).credentials()


def test_a_file_with_a_secret_that_others_may_read_is_refused(path: Path) -> None:
    path.write_text(SIGNED + 'secret_key = "hush"\n')
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="others may read it") as caught:
        contexts.load(path)
    assert f"chmod 600 {path}" in str(caught.value)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_change_says_neither_who_signs_nor_what_is_run(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert contexts.load(path) == STORED
    for more in ('secret_command = "touch here"\n', 'secret_file = "/secret"\n'):
        path.write_text(SIGNED + more)
        with pytest.raises(ConfigurationError, match="others may change it"):
            contexts.load(path)
    path.chmod(0o644)
    contexts.load(path)


def test_nor_does_one_that_belongs_to_somebody_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(SIGNED + 'secret_command = "touch here"\n')
    if path.stat().st_uid == 0:
        os.chown(path, 65_534, -1)
    else:
        monkeypatch.setattr("orbitmq.cli.asking.contexts.os.geteuid", lambda: 65_534)
    with pytest.raises(ConfigurationError, match="others may change it"):
        contexts.load(path)


def test_the_secret_is_read_and_never_shown(orbitmq: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hush\n"))
    said = [orbitmq("context", "add", "one", "127.0.0.1:1", "--access-key", "ops")]
    said += [orbitmq("context", "show", "-o", "json"), orbitmq("context", "list", "-o", "json")]
    assert [ran.code for ran in said] == [0, 0, 0]
    assert json.loads(said[1].out)["access_key"] == json.loads(said[2].out)[0]["access_key"] == "ops"
    assert not any("hush" in ran.out + ran.err for ran in said)
