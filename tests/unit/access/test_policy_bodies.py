"""Bodies of requests about users and policies: what is read, what is refused, and that passwords stay inside."""

from __future__ import annotations

import pytest
from rich.pretty import pretty_repr

from orbitmq.access.policies import Acl, read_entry
from orbitmq.access.policy_bodies import UserChange, acl_info, read_acl, read_subject, read_user, user_info
from orbitmq.access.table import subject_text
from orbitmq.access.users import User, UserStatus, UserType
from orbitmq.errors import ProtocolError
from orbitmq.limits.access import ENTRY_ACTIONS_MAX, ENTRY_SOURCES_MAX, POLICY_ENTRIES_PER_USER_MAX
from orbitmq.protocol.remoting.bodies import AclInfo, UserInfo, read_infos

SECRET = "s3cr3t-of-alice"


def test_a_user_says_what_is_to_change() -> None:
    body = b'{"password":"%b","userStatus":"Disable","userType":"SUPER","username":"alice"}' % SECRET.encode()
    assert read_user(body) == UserChange(SECRET, UserType.SUPER, UserStatus.DISABLED)
    assert read_user(b'{"password":"","userType":null}') == UserChange(None, None, None)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"password":7}', b'{"password":"%b"' % SECRET.encode(), b"\xff"])
def test_no_error_about_a_user_quotes_its_body(body: bytes) -> None:
    with pytest.raises(ValueError, match="UserInfo") as caught:
        read_user(body)
    assert SECRET not in str(caught.value)


def test_a_type_or_status_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^user type is none of Super, Normal"):
        read_user(b'{"userType":"Root"}')
    with pytest.raises(ValueError, match=r"^user status is none of enable, disable"):
        read_user(b'{"userStatus":"off"}')


def test_a_password_is_written_only_where_it_is_asked_for() -> None:
    user = User("alice", SECRET)
    assert user_info(user, tell_password=False).encode() == (
        b'{"userStatus":"enable","userType":"Normal","username":"alice"}'
    )
    told = user_info(user, tell_password=True)
    assert SECRET.encode() in told.encode()
    assert SECRET not in f"{told!r}{user!r}{read_user(told.encode())!r}"
    assert SECRET not in pretty_repr([told, user])


def test_policies_are_read_and_written_as_they_were() -> None:
    acl = Acl(
        "alice",
        (
            read_entry("Topic:orders", ["Pub", "Sub"], ["10.0.0.0/8", "::1"], "Allow"),
            read_entry("*", ["All"], [], "Deny"),
        ),
        (read_entry("Group:*", ["Sub"], [], "Allow"),),
    )
    body = acl_info(acl).encode()
    assert read_acl(body, "alice") == acl
    assert body.startswith(
        b'{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow","resource":"Topic:orders"'
    )
    assert b'"subject":"User:alice"' in body


def test_an_entry_without_a_policy_type_is_custom() -> None:
    body = b"{'policies':[{entries:[{resource:'Topic:a',actions:['all'],sourceIps:null,decision:'allow'}],policyType:null}]}"
    assert read_acl(body, "bob") == Acl("bob", (read_entry("Topic:a", ["All"], [], "Allow"),))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{}", "no entry"),
        (b'{"policies":[{"entries":[]}]}', "no entry"),
        (b'{"policies":[{"policyType":"Own","entries":[{}]}]}', "policy type"),
        (b'{"policies":[{"entries":[{"actions":["Pub"],"decision":"Allow"}]}]}', "resource"),
        (b'{"policies":[{"entries":[{"resource":"Topic:a","decision":"Allow"}]}]}', "actions are missing"),
        (b'{"policies":[{"entries":[{"resource":"Topic:a","actions":["Pub"]}]}]}', "decision is missing"),
        (
            b'{"policies":[{"entries":[{"resource":"Topic:a","actions":["Pub"],"decision":"Allow"}]},'
            b'{"policyType":"custom","entries":[{"resource":"topic:a","actions":["Sub"],"decision":"Deny"}]}]}',
            "two Custom entries about Topic:a",
        ),
        (b'{"policies":7}', "AclInfo"),
        (b"{", "JSON"),
    ],
)
def test_policies_that_mean_nothing_are_refused(body: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_acl(body, "bob")


def test_a_subject_is_a_user() -> None:
    assert read_subject(subject_text("alice")) == "alice"
    assert read_subject("user:a:b") == "a:b"
    for text in ("", "alice", "User:", "User: ", "Role:admin"):
        with pytest.raises(ValueError, match="subject"):
            read_subject(text)


def test_lists_of_users_and_policies() -> None:
    users = read_infos(UserInfo, b'[{"username":"alice","password":"x"},{"username":"bob"}]')
    assert [user.username for user in users] == ["alice", "bob"]
    assert read_infos(AclInfo, b"") == []
    with pytest.raises(ProtocolError, match="no list of UserInfo") as caught:
        read_infos(UserInfo, b'[{"username":"alice","password":"%b"' % SECRET.encode())
    assert SECRET not in str(caught.value)


def test_too_many_entries_are_counted_and_not_read() -> None:
    unreadable = b'{"resource":"nothing"}'
    body = b'{"policies":[{"entries":[%b]}]}' % b",".join([unreadable] * (POLICY_ENTRIES_PER_USER_MAX + 1))
    with pytest.raises(ValueError, match=r"^there are 1001 entries"):
        read_acl(body, "alice")


def test_an_entry_of_very_many_words_is_refused() -> None:
    with pytest.raises(ValueError, match="All stands for every one"):
        read_entry("Topic:a", ["Pub"] * (ENTRY_ACTIONS_MAX + 1), [], "Allow")
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/8"):
        read_entry("Topic:a", ["Pub"], ["nowhere"] * (ENTRY_SOURCES_MAX + 1), "Allow")


def test_a_source_has_no_zone() -> None:
    with pytest.raises(ValueError, match="neither an address nor a network"):
        read_entry("Topic:a", ["Pub"], ["fe80::1%eth0"], "Allow")
