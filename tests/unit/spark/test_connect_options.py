"""How Spark connects: options that name files and commands, and secrets that are looked up where a connection is made."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from orbitmq.client.connect_settings import MEANINGS, ConnectSettings
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.signing import Credentials
from orbitmq.spark.connect_options import CONNECT_OPTIONS, connect_parts, connect_settings, options_of
from orbitmq.spark.given_options import GivenOptions
from orbitmq.spark.options import read_options

CONNECTING = {
    "accessKey": "ops", "secretFile": "/s", "secretCommand": "", "tls": "true", "tlsTrusted": "/t", "tlsCertificate": "/c",
    "tlsKey": "/k", "tlsPasswordFile": "/p", "tlsPasswordCommand": "", "tlsVerify": "false",
}  # fmt: skip


def settings(**given: str) -> ConnectSettings:
    return connect_settings(GivenOptions(given, CONNECT_OPTIONS, "reading"))


def test_there_is_one_option_for_each_setting() -> None:
    assert [option.name for option in CONNECT_OPTIONS] == list(CONNECTING)
    assert len(MEANINGS) == len(CONNECTING)
    said = settings(**CONNECTING)
    assert (said.access_key, said.secret_file, said.secret_command) == ("ops", "/s", None)
    assert (said.tls, said.tls_trusted, said.tls_certificate, said.tls_verify) == (True, "/t", "/c", False)
    assert connect_settings(GivenOptions(options_of(said), CONNECT_OPTIONS, "reading")) == said
    assert settings() == ConnectSettings()
    assert options_of(ConnectSettings()) == {}


def test_what_does_not_go_together_is_found_before_a_server_is_asked() -> None:
    with pytest.raises(ConfigurationError, match="TLS is not used"):
        read_options({"nameServer": "a:1", "topic": "t", "tlsTrusted": "/t"}, streaming=False)
    with pytest.raises(ConfigurationError, match="no option 'secretkey'") as caught:
        read_options({"nameServer": "a:1", "topic": "t", "secretKey": "hush"}, streaming=False)
    assert "hush" not in str(caught.value)


def test_a_secret_is_looked_up_once_and_travels_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hush")
    said = settings(accessKey="ops", secretFile=str(file))
    assert b"hush" not in pickle.dumps(said)
    assert connect_parts(said).credentials == Credentials("ops", "hush")
    file.unlink()
    assert connect_parts(said).client_options.credentials == Credentials("ops", "hush")
    with pytest.raises(ConfigurationError, match=r"on .*: the secret_file .* failed"):
        connect_parts(settings(accessKey="other", secretFile=str(file)))


def test_without_an_option_the_environment_says_who_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITMQ_ACCESS_KEY", "of the executor")
    monkeypatch.setenv("ORBITMQ_SECRET_KEY", "hush")
    connect_parts.cache_clear()
    assert connect_parts(ConnectSettings()).credentials == Credentials("of the executor", "hush")
    connect_parts.cache_clear()
