"""The table of users at a start: keys, users of the configuration, and what stops the start."""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.access.users import ACCESS_FILE, User, UserType
from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError, OrbitError
from orbitmq.server.access.opened_access import open_access, read_key_file
from orbitmq.server.configuration.access_settings import AccessSettings
from orbitmq.server.configuration.settings import ServerSettings
from orbitmq.store.files import OsFiles

NAMED = AccessSettings(
    authenticates=True,
    initial_user='{"username": "root", "password": "root-secret"}',
    inner_credentials='{"accessKey": "inner", "secretKey": "inner-secret"}',
)
USERS = [User("inner", "inner-secret", UserType.SUPER), User("root", "root-secret", UserType.SUPER)]


def settings(root: Path, access: AccessSettings) -> ServerSettings:
    return ServerSettings(data=root, access=access)


def key_file(root: Path) -> Path:
    path = root / "key"
    path.write_bytes(base64.b64encode(b"k" * 32))
    path.chmod(0o600)
    return path


def test_there_is_no_table_where_nobody_is_asked(tmp_path: Path) -> None:
    assert open_access(settings(tmp_path, AccessSettings()), OsFiles(), ManualClock()) is None
    assert list(tmp_path.iterdir()) == []


def test_users_of_the_configuration_are_made_saved_and_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        access = open_access(settings(tmp_path, NAMED), OsFiles(), ManualClock())
        assert access is not None
        assert access.table.users() == USERS
    assert set(json.loads((tmp_path / "config" / ACCESS_FILE).read_bytes())["users"]) == {"inner", "root"}
    assert [record.getMessage() for record in caplog.records] == [
        "the configuration: user 'root' created: Super, enable",
        "the configuration: user 'inner' created: Super, enable",
    ]


def test_what_counts_for_nothing_in_the_configuration_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    open_access(settings(tmp_path, NAMED), OsFiles(), ManualClock())
    assert caplog.messages == []
    other = AccessSettings(authenticates=True, initial_user='{"username": "root", "password": "other-secret"}')
    access = open_access(settings(tmp_path, other), OsFiles(), ManualClock())
    assert access is not None
    assert access.table.users() == USERS
    open_access(settings(tmp_path, AccessSettings()), OsFiles(), ManualClock())
    another_password, nobody_asked = caplog.messages
    assert another_password.startswith("user 'root' has another password")
    assert nobody_asked.startswith("authenticationEnabled is off")
    assert "secret" not in caplog.text


def test_users_that_rocketmq_has_changed_since_are_said_to_count_for_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    open_access(settings(tmp_path, NAMED), OsFiles(), ManualClock())
    assert caplog.messages == []
    for file in ("CURRENT", "000007.sst"):
        (tmp_path / "config" / "users").mkdir(exist_ok=True)
        (tmp_path / "config" / "users" / file).write_text("x")
    open_access(settings(tmp_path, NAMED), OsFiles(), ManualClock())
    (said,) = caplog.messages
    assert said.startswith("config/users say nothing here")


def test_a_key_file_seals_the_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = key_file(tmp_path)
    sealed = AccessSettings(authenticates=True, initial_user=NAMED.initial_user, key_file=str(path))
    open_access(settings(tmp_path, sealed), OsFiles(), ManualClock())
    assert b"root" not in (tmp_path / "config" / ACCESS_FILE).read_bytes()
    with pytest.raises(OrbitError, match="encrypted"):
        open_access(settings(tmp_path, NAMED), OsFiles(), ManualClock())
    assert "chmod" not in caplog.text
    path.chmod(0o644)
    read_key_file(path)
    assert "chmod 600" in caplog.text


@pytest.mark.parametrize("content", [b"secret", b"", b"\xff" * 40, b"#" * 100_000])
def test_a_file_without_keys_stops_the_start_and_is_not_quoted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="accessKeyFile") as refused:
        read_key_file(path)
    assert "secret" not in str(refused.value)
    assert "openssl rand" in str(refused.value.remedy)


def test_a_key_file_that_is_missing_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        read_key_file(tmp_path / "key")


def test_a_table_that_cannot_be_written_is_in_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "config").write_bytes(b"no folder")
    access = open_access(settings(tmp_path, NAMED), OsFiles(), ManualClock())
    assert access is not None
    assert access.table.users() == USERS
    assert access.dirty
    assert "could not be saved" in caplog.text
    assert "secret" not in caplog.text


ACCOUNTS = """
accounts:
- accessKey: shop-user
  secretKey: shop-secret
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [orders=PUB|SUB, invoices=DENY]
- accessKey: root-user
  secretKey: root-secret
  admin: true
"""


def test_accounts_of_rocketmq_4_become_users_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    migrating = settings(tmp_path, AccessSettings(authenticates=True, migrates_v1=True))
    for _ in range(2):
        access = open_access(migrating, OsFiles(), ManualClock())
        assert access is not None
        assert access.table.users() == [
            User("root-user", "root-secret", UserType.SUPER),
            User("shop-user", "shop-secret"),
        ]
        (acl,) = access.table.acls()
        assert [(entry.resource.text, entry.decision.value) for entry in acl.custom] == [
            ("Topic:orders", "Allow"),
            ("Topic:invoices", "Deny"),
        ]
        assert [entry.resource.text for entry in acl.default] == ["Group:*"]
    said = [message for message in caplog.messages if "migrateAuthFromV1Enabled" in message]
    assert len(said) == 3
    assert said[2] == (
        "migrateAuthFromV1Enabled: 2 accounts are users already, and what their files say of them now counts for nothing"
    )
    assert "secret" not in caplog.text


def test_a_migration_without_its_files_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no accounts"):
        open_access(settings(tmp_path, AccessSettings(authenticates=True, migrates_v1=True)), OsFiles(), ManualClock())


def test_a_server_that_asks_nobody_who_they_are_imports_nothing_for_it() -> None:
    program = "import sys, orbitmq.server.lifecycle; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout.decode().split()
    )
    heavy = {"table", "users_gate", "authentication", "policies", "evaluation", "request_needs", "sealing", "plain"}
    assert loaded & {f"orbitmq.access.{name}" for name in heavy} == set()
    assert "orbitmq.access.gate" in loaded, "what would be found"
