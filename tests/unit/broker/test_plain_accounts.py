"""Requests 50 to 54: accounts of RocketMQ 4 are changed and told while the broker runs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orbitmq.access.gate import CALLER
from orbitmq.access.users import User
from orbitmq.broker.broker import Broker
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.rooms import BrokerRooms
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.server.access.plain_files import PlainFiles, read_plain_folder

PUT, DELETE = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG
WHITE = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
VERSIONS, ACCOUNTS = RequestCode.GET_BROKER_CLUSTER_ACL_INFO, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG
ACCOUNT = {"accessKey": "key-of-ann", "secretKey": "Sesame-Sesame"}


@pytest.fixture
def files(rig: Any, tmp_path: Path) -> PlainFiles:
    """The accounts of the rig's broker, which is made again with them."""
    folder = tmp_path / "conf"
    (folder / "acl").mkdir(parents=True)
    (folder / "plain_acl.yml").write_text(
        "# of the operator\naccounts:\n- accessKey: default-key\n  secretKey: Sesame-Sesame\n"
    )
    (folder / "acl" / "team.yml").write_text("accounts:\n- accessKey: team-key\n  secretKey: Sesame-Sesame\n")
    files = PlainFiles(folder, rig.clock)
    core: BrokerCore = rig.broker.core
    core.facilities = msgspec.structs.replace(core.facilities, accounts=files)
    rig.broker = Broker(core, BrokerRooms(core, DerivedState()))
    return files


def ask(rig: Any, code: RequestCode, **fields: str) -> Any:
    """The answer, which comes through the peer where a file is written."""
    peer = rig.peer()
    peer.attachments[CALLER] = User("root-of-all", "Sesame-of-root")
    answer = rig.try_call(code, fields, peer=peer)
    return peer.sent.pop() if answer is None else answer


def test_an_account_is_created_in_the_default_file(
    rig: Any, files: PlainFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answer = ask(
        rig, PUT, **ACCOUNT, admin="true", defaultTopicPerm="DENY", topicPerms="a=PUB, b=SUB|PUB", groupPerms="g=SUB"
    )
    assert answer.code == ResponseCode.SUCCESS
    account = files.table.accounts["key-of-ann"]
    assert files.table.file_of["key-of-ann"] == files.default_file
    assert account.admin
    assert {name: permission.text for name, permission in account.topics.items()} == {"a": "PUB", "b": "PUB|SUB"}
    assert read_plain_folder(files.folder).accounts == files.table.accounts
    (line,) = [record.getMessage() for record in caplog.records if "accessKey=key-of-ann" in record.getMessage()]
    assert line.startswith("user 'root-of-all' at 10.0.0.9:")
    assert "Sesame" not in caplog.text


def test_an_account_is_changed_in_its_own_file_and_keeps_what_is_not_given(rig: Any, files: PlainFiles) -> None:
    assert ask(rig, PUT, accessKey="team-key", secretKey="Sesame-Sesame", topicPerms="a=PUB").code == 0
    assert ask(rig, PUT, accessKey="team-key", secretKey="Sesame-second", whiteRemoteAddress="10.0.0.*").code == 0
    account = files.table.accounts["team-key"]
    assert files.table.file_of["team-key"].endswith("team.yml")
    assert account.secret_key == "Sesame-second"
    assert account.white_addresses.text == "10.0.0.*"
    assert set(account.topics) == {"a"}
    assert ask(rig, PUT, accessKey="team-key", secretKey="Sesame-second", whiteRemoteAddress="").code == 0
    assert files.table.accounts["team-key"].white_addresses.text == ""


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"accessKey": "short"}, "at least 7 characters"),
        ({"accessKey": "key-of-ann"}, "at least 7 characters"),
        ({**ACCOUNT, "topicPerms": "a"}, "topicPerms, entry 1"),
        ({**ACCOUNT, "defaultGroupPerm": "ALL"}, "defaultGroupPerm: 'ALL'"),
        ({**ACCOUNT, "whiteRemoteAddress": "10.0.0.300"}, "is no address"),
    ],
)
def test_an_account_that_cannot_be_used_is_refused(
    rig: Any, files: PlainFiles, fields: dict[str, str], text: str
) -> None:
    before = Path(files.default_file).read_bytes()
    answer = ask(rig, PUT, **fields)
    assert answer.code == 209
    assert text in answer.remark
    assert "Sesame" not in answer.remark
    assert Path(files.default_file).read_bytes() == before


def test_an_account_is_deleted_once(rig: Any, files: PlainFiles) -> None:
    assert ask(rig, DELETE, accessKey="team-key").code == ResponseCode.SUCCESS
    assert set(read_plain_folder(files.folder).accounts) == set(files.table.accounts) == {"default-key"}
    again = ask(rig, DELETE, accessKey="team-key")
    assert (again.code, again.remark) == (
        210,
        "The accessKey[team-key] corresponding to accessConfig has been deleted failed.",
    )


def test_the_white_list_is_replaced_in_the_file_that_is_named(rig: Any, files: PlainFiles) -> None:
    assert ask(rig, WHITE, globalWhiteAddrs="10.0.0.{1,2},10.1.*.*").code == ResponseCode.SUCCESS
    assert files.table.lets_in((10, 0, 0, 2))
    team = files.table.file_of["team-key"]
    assert ask(rig, WHITE, globalWhiteAddrs="10.2.0.1", aclFileFullPath=team).code == ResponseCode.SUCCESS
    assert files.table.lets_in((10, 2, 0, 1))
    assert ask(rig, WHITE, globalWhiteAddrs="10.0.0.300").code == 211
    for path in ("/etc/passwd", "../plain_acl.yml", str(files.folder / "acl" / "new.yml")):
        assert ask(rig, WHITE, globalWhiteAddrs="*", aclFileFullPath=path).code == 211
        assert not files.table.lets_in((9, 9, 9, 9))
    assert ask(rig, WHITE, globalWhiteAddrs="").code == ResponseCode.SUCCESS
    assert not files.table.lets_in((10, 0, 0, 2))


def test_versions_count_the_changes_of_each_file(rig: Any, files: PlainFiles) -> None:
    ask(rig, PUT, **ACCOUNT)
    ask(rig, WHITE, globalWhiteAddrs="10.0.0.1")
    fields = ask(rig, VERSIONS).fields
    versions = json.loads(fields["allAclFileVersion"])
    assert {Path(name).name: version["counter"] for name, version in versions.items()} == {
        "plain_acl.yml": 2,
        "team.yml": 0,
    }
    assert json.loads(fields["version"]) == {"counter": 2, "timestamp": rig.clock.now_ms()}
    assert fields["brokerAddr"] == "10.0.0.1:10911"


def test_accounts_are_told_as_rocketmq_writes_them(rig: Any, files: PlainFiles) -> None:
    ask(rig, PUT, **ACCOUNT, topicPerms="a=PUB")
    ask(rig, WHITE, globalWhiteAddrs="10.0.0.1")
    told = json.loads(bytes(ask(rig, ACCOUNTS).body))
    assert told["globalWhiteAddrs"] == ["10.0.0.1"]
    (account,) = [one for one in told["plainAccessConfigs"] if one["accessKey"] == "key-of-ann"]
    assert account == {
        **ACCOUNT,
        "whiteRemoteAddress": "",
        "admin": False,
        "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "DENY",
        "topicPerms": ["a=PUB"],
        "groupPerms": [],
    }


def test_a_file_that_cannot_be_written_is_said(rig: Any, files: PlainFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    answer = ask(rig, PUT, **ACCOUNT)
    assert (answer.code, "No space left" in answer.remark) == (209, True)
    assert "key-of-ann" not in files.table.accounts


@pytest.mark.parametrize(("code", "failure"), [(PUT, 209), (DELETE, 210), (WHITE, 211), (VERSIONS, 1), (ACCOUNTS, 1)])
def test_without_acl_enable_there_are_no_accounts(rig: Any, code: RequestCode, failure: int) -> None:
    answer = ask(rig, code, **ACCOUNT, globalWhiteAddrs="*")
    assert answer.code == failure
    assert "aclEnable is off" in answer.remark
