"""How to connect: what goes together, what is read where, and that no secret is ever shown."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path

import pytest
from tests.worlds.certificates import Authority

from orbitmq.client.connect_settings import (
    MEANINGS,
    TLS_NAMES,
    ConnectSettings,
    environment_credentials,
    tls_words,
)
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.signing import Credentials
from orbitmq.server.configuration.sources import OTHER_VARIABLES

HUSH = "hush-2"


def test_every_setting_says_what_it_means() -> None:
    assert all(meaning.endswith(".") for _, meaning in MEANINGS.values())
    assert {f"ORBITMQ_{name.upper()}" for name in TLS_NAMES} <= OTHER_VARIABLES


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (ConnectSettings(access_key="ops"), "access_key goes with"),
        (ConnectSettings(secret_file="f"), "access_key goes with"),
        (ConnectSettings(access_key="ops", secret_file="f", secret_command="c"), "access_key goes with"),
        (ConnectSettings(tls_trusted="f"), "TLS is not used"),
        (ConnectSettings(tls_verify=False), "TLS is not used"),
        (ConnectSettings(tls=True, tls_key="f"), "without tls_certificate"),
        (ConnectSettings(tls=True, tls_password_file="f", tls_password_command="c"), "one of them"),
    ],
)
def test_what_does_not_go_together_is_said(settings: ConnectSettings, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        settings.check()


def test_a_secret_is_the_first_line_of_a_file_or_of_what_a_command_prints(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{HUSH}\nmore\n")
    for one in (
        ConnectSettings(access_key="ops", secret_file=str(file)),
        ConnectSettings(access_key="ops", secret_command=f"cat {file}"),
    ):
        one.check()
        assert one.credentials() == Credentials("ops", HUSH)
        assert HUSH not in repr(one)
        assert pickle.loads(pickle.dumps(one)) == one
    assert ConnectSettings().credentials() is None


@pytest.mark.parametrize("command", ["echo hush-$((1+1)); exit 3", "true", "printf '\\377hush-%s' 2"])
def test_a_command_that_fails_is_named_and_its_output_is_not(command: str) -> None:
    with pytest.raises(ConfigurationError, match=r"secret_command|secret_key must be") as caught:
        ConnectSettings(access_key="ops", secret_command=command).credentials()
    assert HUSH not in str(caught.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(ConfigurationError, match=missing):
        ConnectSettings(access_key="ops", secret_file=missing).credentials()
    for settings in (
        ConnectSettings(tls=True, tls_trusted=missing),
        ConnectSettings(tls=True, tls_certificate=missing),
    ):
        with pytest.raises(ConfigurationError, match=f"{missing} cannot be used: No such file"):
            settings.tls_context()


def test_a_context_verifies_unless_it_is_told_not_to(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ConnectSettings(tls=True, tls_trusted=str(authority.file)).tls_context()
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert [one["subject"] for one in context.get_ca_certs()] == [((("commonName", "authority"),),)]
    trusting = ConnectSettings(tls=True, tls_verify=False).tls_context()
    assert trusting is not None
    assert (trusting.verify_mode, trusting.check_hostname) == (ssl.CERT_NONE, False)
    assert ConnectSettings().tls_context() is None


def test_the_password_of_a_key_is_looked_up_when_it_is_encrypted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("own", password=HUSH)
    settings = ConnectSettings(tls=True, tls_certificate=str(pair.cert), tls_key=str(pair.key))
    for password in ({}, {"tls_password_command": "echo wrong"}):
        with pytest.raises(ConfigurationError, match=str(pair.key)) as caught:
            settings.with_tls(password).tls_context()
        assert "wrong" not in str(caught.value)
    assert settings.with_tls({"tls_password_command": f"echo {HUSH}"}).tls_context() is not None
    plain = authority.issue("plain")
    unread = {"tls_certificate": str(plain.cert), "tls_key": str(plain.key), "tls_password_command": "exit 1"}
    assert settings.with_tls(unread).tls_context() is not None


def test_a_switch_that_is_off_takes_all_of_tls_away() -> None:
    settings = ConnectSettings(tls=True, tls_trusted="f", tls_verify=False)
    assert settings.with_tls({"tls": False, "tls_trusted": "g"}) == ConnectSettings()
    assert settings.with_tls({"tls_verify": True}) == ConnectSettings(tls=True, tls_trusted="f")


def test_variables_give_settings_of_tls() -> None:
    environment = {
        "ORBITMQ_TLS": "true",
        "ORBITMQ_TLS_TRUSTED": "f",
        "ORBITMQ_TLS_VERIFY": "False",
        "ORBITMQ_TLS_KEY": "",
    }
    assert tls_words(environment) == {"tls": True, "tls_trusted": "f", "tls_verify": False}
    with pytest.raises(ConfigurationError, match="ORBITMQ_TLS='maybe'"):
        tls_words({"ORBITMQ_TLS": "maybe"})


def test_variables_say_who_signs() -> None:
    environment = {"ORBITMQ_ACCESS_KEY": "me", "ORBITMQ_SECRET_KEY": "mine", "ORBITMQ_SECURITY_TOKEN": "lent"}
    assert environment_credentials(environment) == Credentials("me", "mine", "lent")
    assert environment_credentials({}) is None
    with pytest.raises(ConfigurationError, match="ORBITMQ_SECRET_KEY is not"):
        environment_credentials({"ORBITMQ_ACCESS_KEY": "me"})
