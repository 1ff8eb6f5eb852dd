"""Requests about users and policies, as mqadmin sends them: what is answered, to whom, when, and what the audit log says."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import ListPeer
from tests.worlds.little_store import SteppedWorker

from orbitmq.access.audit import audited, in_fields
from orbitmq.access.gate import CALLER, Denied
from orbitmq.access.users import ACCESS_FILE, User, UserStatus, UserType
from orbitmq.broker.access_requests import USERS, AccessRequests
from orbitmq.broker.saved_access import AccessFile, SavedAccess
from orbitmq.broker.table_saving import TableSaving
from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.broker import TABLE_RETRY_NS
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import FLAG_ONEWAY, Command, request
from orbitmq.store.files import OsFiles

ROOT = User("root", "root-secret", UserType.SUPER)
CLERK = User("clerk", "clerk-secret")


class AccessRig:
    """The room alone, with a table that is written when the worker makes a step."""

    def __init__(self, root: Path) -> None:
        self.path = root / "config" / ACCESS_FILE
        self.clock = ManualClock()
        self.access = SavedAccess(AccessFile(OsFiles(), self.path), self.clock)
        self.access.load([ROOT, CLERK])
        self.access.save()
        self.worker = SteppedWorker()
        self.deadlines = Deadlines()
        saving = TableSaving((self.access,), self.worker, self.deadlines, self.clock, USERS)
        self.room = AccessRequests(self.access, saving)

    def peer(self, by: User | None) -> ListPeer:
        peer = ListPeer(self.clock, 40_001)
        if by is not None:
            peer.attachments[CALLER] = by
        return peer

    def ask(self, code: RequestCode, fields: dict[str, str], body: Any = None, by: User | None = ROOT) -> Command:
        """The answer, after whatever has to be written before it."""
        command, peer = request(code, fields), self.peer(by)
        command.body = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        handler, subject = self.room.handlers()[code], self.room.subjects().get(code, in_fields)
        answer = audited(code, handler, subject)(command, peer)
        if answer is None:
            assert peer.sent == [], "nothing is said before it is saved"
            assert self.worker.step()
            (answer,) = peer.take()
        return answer

    def refused(self, code: RequestCode, fields: dict[str, str], body: Any = None, by: User | None = ROOT) -> Denied:
        with pytest.raises(Denied) as denied:
            self.ask(code, fields, body, by)
        assert "secret" not in denied.value.remark
        return denied.value

    def saved(self) -> Any:
        return json.loads(self.path.read_bytes())["users"]


@pytest.fixture
def access(tmp_path: Path) -> AccessRig:
    return AccessRig(tmp_path)


def policy(resource: str, *actions: str, decision: str = "Allow", **more: Any) -> dict[str, Any]:
    return {"policies": [{"entries": [{"resource": resource, "actions": actions, "decision": decision, **more}]}]}


def test_a_user_is_created_saved_and_told(access: AccessRig) -> None:
    body = {"username": "alice", "password": "alice-secret", "userType": "Normal"}
    assert access.ask(RequestCode.AUTH_CREATE_USER, {"username": "alice"}, body).code == ResponseCode.SUCCESS
    assert access.access.table.user("alice") == User("alice", "alice-secret")
    assert access.saved()["alice"] == {"password": "alice-secret", "userType": "Normal", "userStatus": "enable"}
    told = access.ask(RequestCode.AUTH_GET_USER, {"username": "alice"})
    assert json.loads(told.body) == body | {"userStatus": "enable"}
    assert access.ask(RequestCode.AUTH_GET_USER, {"username": "bob"}).body == b"", "as RocketMQ"


def test_a_change_is_in_force_before_it_is_saved_and_answered_after(access: AccessRig) -> None:
    command, peer = request(RequestCode.AUTH_UPDATE_USER, {"username": "clerk"}), access.peer(ROOT)
    command.body = b'{"userStatus":"disable"}'
    assert access.room.handlers()[RequestCode.AUTH_UPDATE_USER](command, peer) is None
    assert access.access.table.user("clerk") == User("clerk", "clerk-secret", status=UserStatus.DISABLED)
    assert access.saved()["clerk"]["userStatus"] == "enable"
    assert access.worker.step()
    assert access.saved()["clerk"]["userStatus"] == "disable"
    assert [answer.code for answer in peer.take()] == [ResponseCode.SUCCESS]


def test_a_oneway_change_is_made_and_not_answered(access: AccessRig) -> None:
    command, peer = request(RequestCode.AUTH_DELETE_USER, {"username": "clerk"}), access.peer(ROOT)
    command.flag |= FLAG_ONEWAY
    assert access.room.handlers()[RequestCode.AUTH_DELETE_USER](command, peer) is None
    assert access.worker.step()
    assert peer.sent == []
    assert "clerk" not in access.saved()


def test_passwords_are_told_to_super_users_only(access: AccessRig) -> None:
    everything = access.ask(RequestCode.AUTH_LIST_USER, {"filter": ""})
    assert [user["password"] for user in json.loads(everything.body)] == ["clerk-secret", "root-secret"]
    for by in (CLERK, None):
        for answer in (
            access.ask(RequestCode.AUTH_LIST_USER, {"filter": "o"}, by=by),
            access.ask(RequestCode.AUTH_GET_USER, {"username": "root"}, by=by),
        ):
            assert b"root" in answer.body
            assert b"secret" not in answer.body
    assert access.ask(RequestCode.AUTH_LIST_USER, {"filter": "nobody"}).body == b""


def test_policies_are_merged_listed_and_deleted(access: AccessRig) -> None:
    subject = {"subject": "User:clerk"}
    access.ask(RequestCode.AUTH_CREATE_ACL, subject, policy("Topic:orders*", "Pub", "Sub", sourceIps=["10.0.0.0/8"]))
    access.ask(RequestCode.AUTH_UPDATE_ACL, subject, policy("Group:g", "All", decision="Deny"))
    entries = [
        {"resource": "Topic:orders*", "actions": ["Pub", "Sub"], "sourceIps": ["10.0.0.0/8"], "decision": "Allow"},
        {"resource": "Group:g", "actions": ["All"], "decision": "Deny"},
    ]
    acl = {"subject": "User:clerk", "policies": [{"policyType": "Custom", "entries": entries}]}
    assert json.loads(access.ask(RequestCode.AUTH_GET_ACL, subject).body) == acl
    assert access.saved()["clerk"]["custom"] == entries
    filters = {"subjectFilter": "clerk", "resourceFilter": "orders"}
    (listed,) = json.loads(access.ask(RequestCode.AUTH_LIST_ACL, filters).body)
    assert listed["policies"][0]["entries"] == entries[:1]
    assert access.ask(RequestCode.AUTH_LIST_ACL, {"subjectFilter": "nobody"}).body == b""
    access.ask(RequestCode.AUTH_DELETE_ACL, {**subject, "resource": "Topic:orders*", "policyType": "Custom"})
    assert access.saved()["clerk"]["custom"] == entries[1:]
    access.ask(RequestCode.AUTH_DELETE_ACL, subject)
    assert "custom" not in access.saved()["clerk"]
    assert access.ask(RequestCode.AUTH_GET_ACL, subject).body == b""


GOOD = policy("Topic:t", "Pub")


@pytest.mark.parametrize(
    ("code", "fields", "body", "answered", "why"),
    [
        (3001, {"username": " "}, {"password": "p"}, 29, "The username is blank"),
        (3001, {}, {"password": "p"}, 29, "The username is blank"),
        (3001, {"username": "bob"}, {}, 16, "password can not be blank"),
        (3001, {"username": "bob"}, b"", 16, "UserInfo"),
        (3001, {"username": "bob"}, b'{"password": bob-secret', 16, "UserInfo"),
        (3001, {"username": "bob"}, {"password": "p", "userType": "Tall"}, 16, "user type"),
        (3001, {"username": "clerk"}, {"password": "p"}, 16, "The user is existed"),
        (3002, {"username": "bob"}, {"password": "p"}, 16, "The user is not exist"),
        (3004, {"username": ""}, None, 29, "The username is blank"),
        (3006, {"subject": "User:bob"}, GOOD, 16, "The subject of User:bob is not exist."),
        (3006, {"subject": "Robot:clerk"}, GOOD, 16, "Robot:clerk"),
        (3006, {}, GOOD, 16, "no user"),
        (3006, {"subject": "User:clerk"}, {**GOOD, "subject": "User:root"}, 16, "the body about 'User:root'"),
        (3006, {"subject": "User:clerk"}, policy("Shelf:t", "Pub"), 16, "Shelf:t"),
        (3006, {"subject": "User:clerk"}, policy("Topic:t", "Any"), 16, "Any"),
        (3006, {"subject": "User:clerk"}, policy("Topic:t", "Pub", sourceIps=["here"]), 16, "here"),
        (3006, {"subject": "User:clerk"}, {"policies": []}, 16, "no entry"),
        (3006, {"subject": "User:clerk"}, b"\xff" * 1_000_000, 16, "UTF-8"),
        (3008, {"subject": "User:clerk", "resource": "Shelf:t"}, None, 16, "Shelf:t"),
        (3008, {"subject": "User:clerk", "policyType": "Own"}, None, 16, "Own"),
        (3008, {"subject": "User:clerk"}, None, 16, "The acl is not exist."),
        (3009, {"subject": "User:bob"}, None, 16, "The subject is not exist."),
    ],
)
def test_what_cannot_be_done_says_why_and_changes_nothing(
    access: AccessRig, code: int, fields: dict[str, str], body: Any, answered: int, why: str
) -> None:
    denied = access.refused(RequestCode(code), fields, body)
    assert denied.code == answered
    assert why in denied.remark
    assert access.access.table.users() == [CLERK, ROOT]
    assert access.access.table.acls() == []
    assert not access.worker.step()


def test_the_subject_may_stand_in_the_body_alone(access: AccessRig) -> None:
    access.ask(RequestCode.AUTH_CREATE_ACL, {}, {**GOOD, "subject": "User:clerk"})
    assert access.access.table.acl("clerk") is not None


def test_a_list_that_no_frame_holds_is_refused(access: AccessRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.broker.access_requests.POLICY_ENTRIES_LISTED_MAX", 0)
    assert access.ask(RequestCode.AUTH_LIST_ACL, {}).body == b""
    access.ask(RequestCode.AUTH_CREATE_ACL, {"subject": "User:clerk"}, GOOD)
    assert "with a filter" in access.refused(RequestCode.AUTH_LIST_ACL, {}).remark
    monkeypatch.setattr("orbitmq.broker.access_requests.LISTED_BYTES_MAX", 100)
    assert "with a filter" in access.refused(RequestCode.AUTH_LIST_USER, {}).remark
    assert access.ask(RequestCode.AUTH_LIST_USER, {"filter": "clerk"}).body


def test_each_change_is_a_line_of_the_audit_log(access: AccessRig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "orbitmq.audit")
    bob, subject = {"username": "bob"}, {"subject": "User:bob"}
    access.ask(RequestCode.AUTH_CREATE_USER, bob, {"password": "bob-secret"}, CLERK)
    access.ask(RequestCode.AUTH_UPDATE_USER, bob, {"password": "new-secret", "userStatus": "disable"})
    body = policy("Topic:orders*", "Pub", "Sub", sourceIps=["10.0.0.0/8"])
    access.ask(RequestCode.AUTH_CREATE_ACL, subject, body, None)
    access.ask(RequestCode.AUTH_DELETE_ACL, {**subject, "resource": "Topic:orders*"})
    access.ask(RequestCode.AUTH_DELETE_USER, bob)
    access.ask(RequestCode.AUTH_DELETE_USER, bob)
    access.refused(RequestCode.AUTH_GET_ACL, subject)
    access.refused(RequestCode.AUTH_CREATE_USER, {"username": " "}, {"password": "bob-secret"})
    host = access.peer(None).address[0]
    assert [record.getMessage() for record in caplog.records] == [
        f"user 'clerk' at {host}:40001: AUTH_CREATE_USER username=bob; user: none -> Normal, enable; password: none -> ******",
        f"user 'root' at {host}:40001: AUTH_UPDATE_USER username=bob; "
        "user: Normal, enable -> Normal, disable; password: ****** -> ******",
        f"somebody unknown at {host}:40001: AUTH_CREATE_ACL subject=User:bob; "
        "Custom policy on Topic:orders*: none -> Allow Pub|Sub from 10.0.0.0/8",
        f"user 'root' at {host}:40001: AUTH_DELETE_ACL subject=User:bob resource=Topic:orders*; "
        "Custom policy on Topic:orders*: Allow Pub|Sub from 10.0.0.0/8 -> none",
        f"user 'root' at {host}:40001: AUTH_DELETE_USER username=bob; user: Normal, disable -> none; password: ****** -> none",
        f"user 'root' at {host}:40001: AUTH_DELETE_USER username=bob",
        f"user 'root' at {host}:40001 is refused, INVALID_PARAMETER: AUTH_CREATE_USER username= ",
    ]


def test_a_disk_that_fails_is_told_and_tried_again(access: AccessRig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(OsFiles, "create_private", full)
        answer = access.ask(RequestCode.AUTH_CREATE_USER, {"username": "alice"}, {"password": "alice-secret"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "could not be saved" in (answer.remark or "")
    assert "alice" not in access.saved()
    access.clock.advance(TABLE_RETRY_NS // 1_000_000)
    access.deadlines.run_due(access.clock.monotonic_ns())
    assert access.worker.step()
    assert "alice" in access.saved()


def test_a_stop_saves_what_is_not_saved(access: AccessRig) -> None:
    command = request(RequestCode.AUTH_DELETE_USER, {"username": "clerk"})
    assert access.room.handlers()[RequestCode.AUTH_DELETE_USER](command, access.peer(ROOT)) is None
    access.room.close()
    assert "clerk" not in access.saved()


def test_without_authentication_there_are_no_users(rig: Any) -> None:
    for code in range(3001, 3011):
        answer = rig.call(code, {"username": "alice", "subject": "User:alice"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "authenticationEnabled" in answer.remark
