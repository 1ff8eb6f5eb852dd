"""Users on the disk: private, encrypted where there is a key, and never taken for empty."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from orbitmq.access.policies import ALL_ACTIONS, Acl, Decision, Entry, read_resource
from orbitmq.access.users import ACCESS_FILE, User, UserType
from orbitmq.broker.saved_access import AccessFile, SavedAccess
from orbitmq.clock import ManualClock
from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import OsFiles

ROOT = User("root", "root-secret", UserType.SUPER)
ALICE = User("alice", "alice-secret")
POLICIES = Acl("alice", (Entry(read_resource("Topic:orders*"), ALL_ACTIONS, ("10.0.0.0/8",), Decision.ALLOW),))
KEY, OTHER = b"k" * 32, b"o" * 32


def saved(root: Path, keys: Sequence[bytes] = ()) -> SavedAccess:
    return SavedAccess(AccessFile(OsFiles(), root / "config" / ACCESS_FILE, keys), ManualClock())


def with_alice(root: Path, keys: Sequence[bytes] = ()) -> bytes:
    access = saved(root, keys)
    access.load([ROOT, ALICE])
    access.table.merge_acl(POLICIES, ROOT)
    access.changed("alice")
    access.save()
    return (root / "config" / ACCESS_FILE).read_bytes()


def test_what_was_saved_is_there_again_with_its_version(tmp_path: Path) -> None:
    content = with_alice(tmp_path)
    again = saved(tmp_path)
    assert again.load() == []
    assert again.table.users() == [ALICE, ROOT]
    assert again.table.acls() == [POLICIES]
    assert again.version.counter == 2
    assert b'\n{"password":"alice-secret"' in content, "a line of its own"
    assert (tmp_path / "config" / ACCESS_FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "config").iterdir()] == [ACCESS_FILE], "nothing older beside it"


def test_users_of_the_settings_are_made_once(tmp_path: Path) -> None:
    with_alice(tmp_path)
    again = saved(tmp_path)
    assert again.load([User("root", "other-secret"), User("bob", "bob-secret")]) == [User("bob", "bob-secret")]
    assert again.table.user("root") == ROOT


def test_a_file_that_is_out_of_reach_is_no_empty_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_alice(tmp_path)
    path = tmp_path / "config" / ACCESS_FILE
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "not-mounted.json")
    with pytest.raises(StoreDamagedError, match="not there"):
        saved(tmp_path).load([ROOT])

    def forbidden(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(OsFiles, "read_bytes", forbidden)
    path.unlink()
    with pytest.raises(PermissionError):
        saved(tmp_path).load([ROOT])


def test_with_a_key_nothing_can_be_read_without_it(tmp_path: Path) -> None:
    content = with_alice(tmp_path, [KEY])
    for word in (b"alice", b"secret", b"orders"):
        assert word not in content
    with pytest.raises(StoreDamagedError, match="encrypted") as refused:
        saved(tmp_path).load()
    assert "accessKeyFile" in str(refused.value.remedy)
    with pytest.raises(StoreDamagedError, match="no key opens it"):
        saved(tmp_path, [OTHER]).load()
    again = saved(tmp_path, [KEY])
    again.load()
    assert again.table.acls() == [POLICIES]


def test_a_start_seals_what_lay_open_and_changes_the_key(tmp_path: Path) -> None:
    with_alice(tmp_path)
    for keys in ([KEY], [OTHER, KEY], [OTHER]):
        access = saved(tmp_path, keys)
        access.load()
        assert access.dirty, "a start writes the table anew"
        access.save()
        assert b"secret" not in (tmp_path / "config" / ACCESS_FILE).read_bytes()
    assert access.table.users() == [ALICE, ROOT]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b'{"users": {"alice": {"password": "alice-secret',
        b'{"users": {"alice": {"password": alice-secret}}}',
        b'{"users": {}}',
        b'{"dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1}, "users": {"alice": {"password": "alice-secret"}}}',
        b'{"sealed": "ROT13", "nonce": "AAAA", "content": "AAAA"}',
    ],
)
def test_a_table_that_cannot_be_read_stops_the_start(tmp_path: Path, content: bytes) -> None:
    with_alice(tmp_path)
    path = tmp_path / "config" / ACCESS_FILE
    path.write_bytes(content)
    with pytest.raises(StoreDamagedError) as refused:
        saved(tmp_path, [KEY]).load([ROOT])
    assert "restore" in str(refused.value.remedy)
    assert "secret" not in str(refused.value)
    assert path.read_bytes() == content
