"""Users and policies as requests carry them: words, which `orbitmq.access` and the client give a meaning.

Rules of this file
1. No error about a user quotes its body, and no repr shows a password.
2. A member that is absent is None: of a user to be changed it stays as it is.
"""

from __future__ import annotations

from typing import Self, TypeVar

from orbitmq.errors import ProtocolError
from orbitmq.protocol.remoting import fastjson
from orbitmq.protocol.remoting.bodies.json_body import JsonBody, kept_list
from orbitmq.protocol.remoting.frame import Buffer


class UserInfo(JsonBody):
    """A user, or what is to change about one. Type `Super` or `Normal`, status `enable` or `disable`."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        try:
            return super().decode(data)
        except ProtocolError:
            raise ProtocolError("body is no UserInfo") from None  # the text about JSON quotes it

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type!r}, {self.user_status!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """What `rich` prints; without this all fields."""
        return [("username", self.username), ("user_type", self.user_type), ("user_status", self.user_status)]


class PolicyEntryInfo(JsonBody):
    """One entry. Resource such as `Topic:orders`; sources are addresses and networks; decision `Allow` or `Deny`."""

    resource: str | None = None
    actions: list[str] = kept_list()
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(JsonBody):
    """Entries of one policy type, `Custom` or `Default`."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] = kept_list()


class AclInfo(JsonBody):
    """All policies of a subject, such as `User:alice`."""

    subject: str | None = None
    policies: list[PolicyInfo] = kept_list()


_Info = TypeVar("_Info", UserInfo, AclInfo)


def read_infos(kind: type[_Info], data: Buffer) -> list[_Info]:
    """A list of users or of policies; no body is an empty one."""
    if not len(data):
        return []
    try:
        values = fastjson.loads(data)
    except ProtocolError:
        values = None
    if not isinstance(values, list):
        raise ProtocolError(f"body is no list of {kind.__name__}")
    return [kind.from_value(value) for value in values]
