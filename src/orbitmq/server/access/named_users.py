"""Users that the configuration names: the one as which this server calls others, and the one that exists after the first start.

RocketMQ writes both as JSON inside a value: {"accessKey": ..., "secretKey": ...} and {"username": ..., "password": ...}. Both are super
users wherever they are known.

(RocketMQ broker, auth in 5.x: initial users.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbitmq.access.users import User, UserType
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.signing import Credentials
from orbitmq.server.configuration.access_settings import AccessSettings

if TYPE_CHECKING:
    from orbitmq.access.evaluation import Permissions
    from orbitmq.access.users_gate import UserSource

INNER_KEY = "innerClientAuthenticationCredentials"
INITIAL_KEY = "initAuthenticationUser"


def inner_credentials(access: AccessSettings) -> Credentials | None:
    """What this server signs its own calls with; None where nothing is given. ConfigurationError, which never quotes the value."""
    return _read(INNER_KEY, access.inner_credentials, "accessKey", "secretKey")


def named_users(access: AccessSettings) -> Iterator[User]:
    """The super users that the configuration names. ConfigurationError as above."""
    initial = _read(INITIAL_KEY, access.initial_user, "username", "password")
    for named in (initial, inner_credentials(access)):
        if named is not None:
            yield User(named.access_key, named.secret_key, UserType.SUPER)


class NamedUsers:
    """The users that a name server knows: those of the configuration, or of a broker in the same process, which has the others too."""

    def __init__(self, access: AccessSettings) -> None:
        self.of_broker: UserSource | None = None
        self._named = {user.name: user for user in named_users(access)}

    def user(self, name: str) -> User | None:
        return self._named.get(name) if self.of_broker is None else self.of_broker.user(name)

    def permissions(self, name: str) -> Permissions | None:
        return None if self.of_broker is None else self.of_broker.permissions(name)


def _read(key: str, text: str, name_field: str, secret_field: str) -> Credentials | None:
    if not text:
        return None
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    remedy = f'write {key} = {{"{name_field}": "...", "{secret_field}": "..."}}'
    if not isinstance(fields, dict):
        raise ConfigurationError(f"{key} is no JSON object", remedy=remedy)
    try:
        return Credentials(fields.get(name_field, ""), fields.get(secret_field, ""))
    except ConfigurationError:
        raise ConfigurationError(
            f"{key} needs {name_field} and {secret_field}, text of one line without blanks around it", remedy=remedy
        ) from None
