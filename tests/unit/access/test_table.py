"""Users and their policies: what a change does, who may make it, and what is refused in which words."""

from __future__ import annotations

import traceback
from typing import Any

import msgspec
import pytest

from orbitmq.access.gate import Denied
from orbitmq.access.policies import ALL_ACTIONS, Acl, Decision, Entry, PolicyType, read_resource
from orbitmq.access.table import AccessTable
from orbitmq.access.users import User, UserStatus, UserType
from orbitmq.limits.access import (
    PASSWORD_CHARS_MAX,
    POLICY_ENTRIES_PER_USER_MAX,
    RESOURCE_NAME_CHARS_MAX,
    USER_NAME_CHARS_MAX,
)
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.requests import Action

ROOT = User("root", "root-secret", UserType.SUPER)
ALICE = User("alice", "alice-secret")
CLERK = User("clerk", "clerk-secret")
"""May change the cluster, and is no super user."""


def entry(resource: str, *actions: Action, decision: Decision = Decision.ALLOW, sources: tuple[str, ...] = ()) -> Entry:
    return Entry(read_resource(resource), frozenset(actions) or ALL_ACTIONS, sources, decision)


@pytest.fixture
def table() -> AccessTable:
    table = AccessTable()
    for user in (ROOT, ALICE, CLERK):
        assert table.create_at_start(user)
    return table


def refused(code: ResponseCode, words: str, call: Any, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(Denied) as denied:
        call(*args, **kwargs)
    assert denied.value.code is code
    assert words in denied.value.remark
    assert "secret" not in denied.value.remark


def test_a_user_that_is_created_is_there_and_one_of_the_same_name_is_refused(table: AccessTable) -> None:
    bob = User("bob", "bob-secret", status=UserStatus.DISABLED)
    table.create_user(bob, CLERK)
    assert table.user("bob") == bob
    refused(ResponseCode.NO_PERMISSION, "The user is existed", table.create_user, User("bob", "other-secret"), ROOT)
    assert table.user("bob") == bob
    assert table.acl("bob") is None


def test_a_user_of_the_settings_leaves_the_one_that_exists_as_it_is(table: AccessTable) -> None:
    assert not table.create_at_start(User("alice", "new-secret", UserType.SUPER))
    assert table.user("alice") == ALICE


@pytest.mark.parametrize(
    ("name", "password", "code", "words"),
    [
        (" ", "p", ResponseCode.NO_PERMISSION, "username can not be blank"),
        ("bob", " ", ResponseCode.NO_PERMISSION, "password can not be blank"),
        ("bob\n2026 root deleted", "p", ResponseCode.INVALID_PARAMETER, "can be printed"),
        ("bob\ud800", "p", ResponseCode.INVALID_PARAMETER, "can be printed"),
        ("b" * (USER_NAME_CHARS_MAX + 1), "p", ResponseCode.INVALID_PARAMETER, "at most 255 characters"),
        ("bob", "secret" * PASSWORD_CHARS_MAX, ResponseCode.INVALID_PARAMETER, "at most 1024 characters"),
        ("bob", "secret\ud800", ResponseCode.INVALID_PARAMETER, "UTF-8"),
    ],
)
def test_a_name_or_password_that_cannot_be_kept_is_refused(
    table: AccessTable, name: str, password: str, code: ResponseCode, words: str
) -> None:
    refused(code, words, table.create_user, User(name, password), ROOT)
    assert len(table) == 3


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a:b", "*", "User:x", "用户", "x" * USER_NAME_CHARS_MAX, '"{}$ref']
)
def test_a_name_may_look_like_anything(table: AccessTable, name: str) -> None:
    table.create_user(User(name, "p"), ROOT)
    table.merge_acl(Acl(name, (entry("Topic:T"),)), ROOT)
    again = saved_and_loaded(table)
    assert again.user(name) == User(name, "p")
    assert again.acl(name) == Acl(name, (entry("Topic:T"),))


def test_an_update_changes_what_it_gives(table: AccessTable) -> None:
    table.merge_acl(Acl("alice", (entry("Topic:T"),)), ROOT)
    table.update_user("alice", CLERK, password="new-secret")
    assert table.user("alice") == User("alice", "new-secret")
    table.update_user("alice", CLERK, password=" ", status=UserStatus.DISABLED)
    assert table.user("alice") == User("alice", "new-secret", status=UserStatus.DISABLED)
    table.update_user("alice", ROOT, type=UserType.SUPER)
    assert table.user("alice") == User("alice", "new-secret", UserType.SUPER, UserStatus.DISABLED)
    assert table.acl("alice") == Acl("alice", (entry("Topic:T"),)), "policies stay"
    refused(ResponseCode.NO_PERMISSION, "The user is not exist", table.update_user, "bob", ROOT)


@pytest.mark.parametrize("by", [CLERK, None])
def test_only_a_super_user_makes_changes_or_deletes_a_super_user(table: AccessTable, by: User | None) -> None:
    wrong = ResponseCode.SYSTEM_ERROR
    refused(wrong, "only be create by super user", table.create_user, User("eve", "p", UserType.SUPER), by)
    refused(wrong, "only be update by super user", table.update_user, "alice", by, type=UserType.SUPER)
    wrong = ResponseCode.NO_PERMISSION
    refused(wrong, "only be update by super user", table.update_user, "root", by, password="mine-secret")
    refused(wrong, "only be update by super user", table.delete_user, "root", by)
    assert table.users() == [ALICE, CLERK, ROOT]


def test_a_user_goes_with_its_policies(table: AccessTable) -> None:
    table.merge_acl(Acl("alice", (entry("Topic:T"),)), ROOT)
    assert table.delete_user("alice", CLERK)
    assert not table.delete_user("alice", CLERK), "RocketMQ answers success as well"
    assert table.user("alice") is None
    refused(ResponseCode.NO_PERMISSION, "The subject is not exist.", table.acl, "alice")
    table.create_user(ALICE, ROOT)
    assert table.acl("alice") is None, "a new user of that name does not inherit them"
    refused(ResponseCode.NO_PERMISSION, "username can not be blank", table.delete_user, "", ROOT)


def test_entries_are_merged_by_resource_within_their_policy(table: AccessTable) -> None:
    table.merge_acl(Acl("alice", (entry("Topic:a", Action.PUB), entry("Topic:b*")), (entry("Topic:a"),)), ROOT)
    table.merge_acl(Acl("alice", (entry("Group:g"), entry("Topic:a", Action.SUB, decision=Decision.DENY))), ROOT)
    assert table.acl("alice") == Acl(
        "alice",
        (entry("Topic:a", Action.SUB, decision=Decision.DENY), entry("Topic:b*"), entry("Group:g")),
        (entry("Topic:a"),),
    )


def test_policies_need_a_user_and_entries(table: AccessTable) -> None:
    code = ResponseCode.NO_PERMISSION
    refused(code, "The subject of User:bob is not exist.", table.merge_acl, Acl("bob", (entry("*"),)), ROOT)
    refused(code, "The policies is empty.", table.merge_acl, Acl("alice"), ROOT)


def test_an_entry_is_deleted_from_one_policy_and_without_a_resource_all_are(table: AccessTable) -> None:
    both = Acl("alice", (entry("Topic:a"), entry("Topic:b")), (entry("Topic:a"),))
    table.merge_acl(both, ROOT)
    table.delete_acl("alice", ROOT, PolicyType.CUSTOM, read_resource("Topic:a"))
    table.delete_acl("alice", ROOT, PolicyType.CUSTOM, read_resource("Topic:never"))
    assert table.acl("alice") == Acl("alice", (entry("Topic:b"),), (entry("Topic:a"),))
    table.delete_acl("alice", ROOT, PolicyType.DEFAULT, read_resource("Topic:a"))
    table.delete_acl("alice", ROOT, PolicyType.CUSTOM, read_resource("Topic:b"))
    assert table.acl("alice") is None
    code = ResponseCode.NO_PERMISSION
    refused(code, "The acl is not exist.", table.delete_acl, "alice", ROOT)
    refused(code, "The subject is not exist.", table.delete_acl, "bob", ROOT)
    table.merge_acl(both, ROOT)
    table.delete_acl("alice", ROOT, PolicyType.DEFAULT)
    assert table.acl("alice") is None


def test_nobody_but_a_super_user_changes_policies_of_its_own(table: AccessTable) -> None:
    wanted = Acl("clerk", (entry("*"),))
    refused(ResponseCode.NO_PERMISSION, "a super user can", table.merge_acl, wanted, CLERK)
    refused(ResponseCode.NO_PERMISSION, "a super user can", table.delete_acl, "clerk", CLERK)
    table.merge_acl(wanted, ROOT)
    table.merge_acl(Acl("root", (entry("*"),)), ROOT)


def test_lists_are_narrowed_by_parts_of_names(table: AccessTable) -> None:
    table.merge_acl(Acl("alice", (entry("Topic:orders"), entry("Group:g")), (entry("Topic:orders*"),)), ROOT)
    table.merge_acl(Acl("clerk", (entry("Cluster:*"),)), ROOT)
    assert [user.name for user in table.users()] == ["alice", "clerk", "root"]
    assert table.users("li") == [ALICE]
    assert [acl.user for acl in table.acls()] == ["alice", "clerk"]
    assert [acl.user for acl in table.acls("User:a")] == ["alice"]
    assert table.acls("", "orders") == [Acl("alice", (entry("Topic:orders"),), (entry("Topic:orders*"),))]
    assert table.acls("clerk", "orders") == []


def test_what_would_be_too_much_is_refused_and_changes_nothing(table: AccessTable) -> None:
    full = Acl("alice", tuple(entry(f"Topic:{number}") for number in range(POLICY_ENTRIES_PER_USER_MAX)))
    table.merge_acl(full, ROOT)
    code = ResponseCode.SYSTEM_ERROR
    refused(code, "replaces many", table.merge_acl, Acl("alice", (entry("Topic:more"),)), ROOT)
    table.merge_acl(Acl("alice", (entry("Topic:7", Action.PUB),)), ROOT)
    assert len((table.acl("alice") or full).custom) == POLICY_ENTRIES_PER_USER_MAX
    code = ResponseCode.INVALID_PARAMETER
    long = entry("Topic:" + "t" * (RESOURCE_NAME_CHARS_MAX + 1))
    refused(code, "resource's name", table.merge_acl, Acl("clerk", (long,)), ROOT)
    assert table.acl("clerk") is None


def test_all_users_together_have_bounds(table: AccessTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.access.table.USERS_MAX", 3)
    monkeypatch.setattr("orbitmq.access.table.POLICY_ENTRIES_MAX", 2)
    refused(ResponseCode.SYSTEM_ERROR, "there are 3 already", table.create_user, User("bob", "p"), ROOT)
    table.merge_acl(Acl("alice", (entry("Topic:a"), entry("Topic:b"))), ROOT)
    wanted = Acl("clerk", (entry("Topic:a"),))
    refused(ResponseCode.SYSTEM_ERROR, "cannot be kept", table.merge_acl, wanted, ROOT)
    table.delete_user("alice", ROOT)
    table.merge_acl(wanted, ROOT)


def saved_and_loaded(table: AccessTable) -> AccessTable:
    again = AccessTable()
    again.load(msgspec.json.decode(msgspec.json.encode(table.frozen()())))
    return again


def test_the_file_gives_back_the_table(table: AccessTable) -> None:
    acl = Acl("alice", (entry("Topic:a", Action.PUB, sources=("10.0.0.0/8",)), entry("*")), (entry("Group:g*"),))
    table.merge_acl(acl, ROOT)
    table.update_user("clerk", ROOT, status=UserStatus.DISABLED)
    again = saved_and_loaded(table)
    assert again.users() == table.users()
    assert again.acls() == table.acls() == [acl]


def test_what_is_being_saved_is_not_what_changes_meanwhile(table: AccessTable) -> None:
    document = table.frozen()
    table.delete_user("alice", ROOT)
    assert set(document()) == {"root", "alice", "clerk"}


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"password": 5, "userType": "Normal", "userStatus": "enable"},
        {"password": "p", "userType": "Sesame", "userStatus": "enable"},
        {"password": "p", "userType": "Normal", "userStatus": "Sesame' - at `$.userStatus"},
        {"password": "", "userType": "Normal", "userStatus": "enable"},
        {"password": "p", "userType": "Normal", "userStatus": "enable", "custom": [{"resource": "Topic:a"}]},
        {
            "password": "p", "userType": "Normal", "userStatus": "enable",
            "custom": [{"resource": "Shelf:a", "actions": ["Pub"], "decision": "Allow"}],
        },
        {"password": "p", "userType": "Normal", "userStatus": "enable", "until": "tomorrow"},
        {
            "password": "p", "userType": "Normal", "userStatus": "enable",
            "custom": [{"resource": "Topic:a", "actions": ["Pub"], "decision": "Allow", "until": "tomorrow"}],
        },
    ],
)  # fmt: skip
def test_a_file_with_something_else_in_it_is_refused_whole(table: AccessTable, saved: dict[str, object]) -> None:
    good = {"password": "p", "userType": "Normal", "userStatus": "enable"}
    with pytest.raises(ValueError, match="user 'bob': ") as refused:
        table.load({"adam": good, "bob": saved})
    assert "Sesame" not in "".join(traceback.format_exception(refused.value))
    assert table.users() == [ALICE, CLERK, ROOT]
