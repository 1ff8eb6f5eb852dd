"""The table of configuration keys: every key of RocketMQ 5.3 to 5.5 and what becomes of it here.

The table itself is data (`broker_keys.json`, `proxy_keys.json`, `nameserver_keys.json`, one key per line) and is reviewed as such; this
module gives it types and answers questions about it.

Rules of this file
1. Every known key is used, without effect (warns), or a promise not kept yet (stops the start when it is set to a
   value other than the ones listed as harmless). Each says why in one sentence.
2. A key that touches durability, security, visibility or time is never merely warned about.
3. A key in no table is an error that names the nearest known one; nothing is passed over in silence.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.nearest import nearest

ENVIRONMENT_PREFIX: Final = "ORBITMQ_"


class KeyStatus(enum.Enum):
    """What happens to a key that somebody sets."""

    USED = "used"
    NOT_YET = "not_yet"
    NO_EFFECT = "no_effect"


class Touches(enum.Enum):
    """What a wrong value of a key could break."""

    NOTHING = ""
    DURABILITY = "durability"
    SECURITY = "security"
    VISIBILITY = "visibility"
    TIME = "time"


class ValueKind(enum.Enum):
    """How the text of a value is read; see `orbitmq.server.configuration.values`."""

    BOOL = "bool"
    INT = "int"
    TEXT = "text"
    NAME = "name"
    CHOICE = "choice"
    PATH = "path"
    HOURS = "hours"
    ADDRESSES = "addresses"
    KEYS = "keys"
    LEVELS = "levels"
    LABELS = "labels"
    LOG_LEVELS = "log_levels"
    NETWORKS = "networks"
    SECRET = "secret"
    ENGINE = "engine"


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the table.

    `field` is `section.attribute` of a settings object (used keys only), `accepts` the values that ask for nothing
    unbuilt (not_yet keys only; empty text means unset), `runtime` whether a request may change it in a running server,
    `optional` that an empty text is a value, None, `since` the release that brought it, of those after 5.3.
    """

    key: str
    status: KeyStatus
    reason: str
    touches: Touches = Touches.NOTHING
    field: str = ""
    kind: ValueKind = ValueKind.TEXT
    unit: str = ""
    low: int | None = None
    high: int | None = None
    round_up_to: int = 1
    choices: tuple[str, ...] = ()
    accepts: tuple[str, ...] = ()
    runtime: bool = False
    optional: bool = False
    since: str = ""

    def asks_for_nothing(self, text: str) -> bool:
        """Whether `text` is one of the values that a not_yet key may have, compared as Java would read them."""
        plain = text.strip()
        for accepted in self.accepts:
            if plain == accepted:
                return True
            if accepted in ("true", "false") and plain.lower() == accepted:
                return True
            if _is_number(accepted) and _is_number(plain) and int(accepted) == int(plain):
                return True
        return False


class KeyTable:
    """Known keys by name and by environment variable."""

    __slots__ = ("_by_environment", "_by_name")

    def __init__(self, keys: Iterable[Key]) -> None:
        self._by_name: dict[str, Key] = {}
        for key in keys:
            self._by_name.setdefault(key.key, key)
        self._by_environment = {environment_name(name): key for name, key in self._by_name.items()}

    def __iter__(self) -> Iterator[Key]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Key | None:
        """The key called `name`, spelled exactly as RocketMQ spells it."""
        return self._by_name.get(name)

    def find_environment(self, variable: str) -> Key | None:
        """The key of an environment variable: `ORBITMQ_FLUSH_DISK_TYPE` or `ORBITMQ_flushDiskType`."""
        return self._by_environment.get(variable) or self._by_name.get(variable.removeprefix(ENVIRONMENT_PREFIX))

    def nearest(self, name: str) -> str | None:
        """The known key that looks most like `name`, or None when none does. Costs a comparison with every key."""
        return nearest(name.replace("_", ""), self._by_name)

    def nearest_environment(self, variable: str) -> str | None:
        """The known environment variable that looks most like `variable`."""
        return nearest(variable, self._by_environment)


def environment_name(key: str) -> str:
    """`flushDiskType` -> `ORBITMQ_FLUSH_DISK_TYPE`; dots become underscores, runs of capitals stay together."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|\.", "_", key)
    return ENVIRONMENT_PREFIX + words.upper()


KEYS_OF_ACCESS: Final = (
    "aclCacheExpiredSecond", "aclCacheMaxNum", "aclCacheRefreshSecond", "authConfigPath", "authenticationEnabled",
    "authenticationMetadataProvider", "authenticationProvider", "authenticationStrategy", "authenticationWhitelist",
    "authorizationEnabled", "authorizationMetadataProvider", "authorizationProvider", "authorizationStrategy",
    "authorizationWhitelist", "initAuthenticationUser", "innerClientAuthenticationCredentials", "migrateAuthFromV1Enabled",
    "statefulAuthenticationCacheExpiredSecond", "statefulAuthenticationCacheMaxNum",
    "statefulAuthorizationCacheExpiredSecond", "statefulAuthorizationCacheMaxNum", "userCacheExpiredSecond",
    "userCacheMaxNum", "userCacheRefreshSecond",
)  # fmt: skip
"""Keys of the broker that RocketMQ reads in the file of its proxy as well."""


@cache
def broker_keys() -> KeyTable:
    """Keys of a broker, the ones of a `broker.conf`, and those of RocketMQ's proxy that are no second name of one of them."""
    own = _read("broker_keys.json")
    taken = {key.field for key in own if key.field} | {environment_name(key.key) for key in own}
    of_proxy = [key for key in _read("proxy_keys.json") if not {key.field, environment_name(key.key)} & taken]
    return KeyTable([*own, *of_proxy])


@cache
def proxy_keys() -> KeyTable:
    """Keys of a proxy, the ones of a `rmq-proxy.json`."""
    of_broker = KeyTable(_read("broker_keys.json"))
    shared = [key for name in KEYS_OF_ACCESS if (key := of_broker.find(name)) is not None]
    return KeyTable([*_read("proxy_keys.json"), *shared])


@cache
def nameserver_keys() -> KeyTable:
    """Keys of a name server that runs alone, the ones of a `namesrv.conf`."""
    return KeyTable(_read("nameserver_keys.json"))


@cache
def shared_keys() -> KeyTable:
    """Keys of one process with both roles. Where both have a key of one name (`listenPort`) the broker's counts."""
    return KeyTable([*broker_keys(), *nameserver_keys()])


def _read(name: str) -> list[Key]:
    data = (Path(__file__).parent / name).read_bytes()
    return msgspec.json.decode(data, type=list[Key])


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,19}", text) is not None
