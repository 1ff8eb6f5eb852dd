"""Users in the configuration."""

from __future__ import annotations

import json

import pytest
from rich.pretty import pretty_repr

from orbitmq.access.evaluation import Permissions
from orbitmq.access.policies import Acl
from orbitmq.access.users import User, UserType
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.signing import Credentials
from orbitmq.server.access.named_users import NamedUsers, inner_credentials, named_users
from orbitmq.server.configuration.access_settings import AccessSettings

INNER = json.dumps({"accessKey": "inner", "secretKey": "marked-1"})
INITIAL = json.dumps({"username": "first", "password": "marked-2", "userType": "Normal"})


def test_nobody_is_named_where_nothing_is_given() -> None:
    assert inner_credentials(AccessSettings()) is None
    assert list(named_users(AccessSettings())) == []


def test_both_are_super_users() -> None:
    access = AccessSettings(inner_credentials=INNER, initial_user=INITIAL)
    assert inner_credentials(access) == Credentials("inner", "marked-1")
    assert list(named_users(access)) == [
        User("first", "marked-2", UserType.SUPER),
        User("inner", "marked-1", UserType.SUPER),
    ]
    assert "marked" not in repr(access) + pretty_repr(access)


@pytest.mark.parametrize(
    "text",
    [
        "marked", "[]", '"marked"', "{", '{"accessKey": "marked"}', '{"secretKey": "marked"}',
        '{"accessKey": "", "secretKey": "marked"}', '{"accessKey": "a", "secretKey": " marked"}',
        '{"accessKey": "a", "secretKey": ["marked"]}', '{"accessKey": "a", "secretKey": null}',
        '{"accessKey": "a\\n", "secretKey": "marked"}',
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_without_the_secret(text: str) -> None:
    with pytest.raises(ConfigurationError, match="innerClientAuthenticationCredentials") as raised:
        inner_credentials(AccessSettings(inner_credentials=text))
    assert "marked" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_name_server_knows_the_named_users_and_then_those_of_its_broker() -> None:
    class Table:
        def user(self, name: str) -> User | None:
            return User(name, "of the table") if name == "alice" else None

        def permissions(self, name: str) -> Permissions | None:
            return Permissions(Acl(name))

    users = NamedUsers(AccessSettings(inner_credentials=INNER))
    inner = users.user("inner")
    assert inner is not None
    assert inner.password == "marked-1"
    assert users.user("alice") is None
    assert users.permissions("inner") is None
    users.of_broker = Table()
    assert users.user("inner") is None
    assert users.user("alice") == User("alice", "of the table")
    assert users.permissions("alice") is not None
