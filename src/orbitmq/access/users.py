"""Users: names, and the passwords that their signatures are made with.

A password is kept as it is: a signature can only be checked by somebody who knows the secret. Nothing here ever prints one.

(RocketMQ broker, auth in 5.x: users.)
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

ACCESS_FILE: Final = "orbitmq-access.json"
"""The file of users and policies, in the folder `config` of a broker's data."""


class UserType(enum.Enum):
    """Whether policies count: a super user may do everything. The values are those of RocketMQ's requests."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(enum.Enum):
    """Whether a user may call at all. The values are those of RocketMQ's requests."""

    ENABLED = "enable"
    DISABLED = "disable"


def subject_text(name: str) -> str:
    """A user as requests about policies name it."""
    return f"User:{name}"


class User(msgspec.Struct, frozen=True):
    name: str
    password: str
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLED

    def __repr__(self) -> str:
        return f"User({self.name!r}, {self.type.value}, {self.status.value})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """What `rich` prints; without this all fields."""
        return [("name", self.name), ("type", self.type.value), ("status", self.status.value)]
