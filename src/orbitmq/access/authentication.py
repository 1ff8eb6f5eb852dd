"""Authentication: whether a request is signed with the secret of the user that it names.

Rules of this file
1. The signature is over the ext fields as they were kept: of one that stands twice in a frame the last, which is also what handlers
   read. (RocketMQ remoting, ACL and auth: signature.)
2. Signatures are compared in constant time.
3. The secret of a user is made ready once. What is known of it is forgotten when somebody calls by the name of a user who is gone, and
   when there are more of them than users can be. It stands in no error and no repr.
"""

from __future__ import annotations

import enum
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha1
from hmac import compare_digest
from operator import itemgetter
from typing import Final, Protocol

from orbitmq.access.users import User, UserStatus
from orbitmq.limits.access import FIELD_ORDER_CHARS_MAX, FIELD_ORDERS_KEPT_MAX, USERS_MAX
from orbitmq.protocol.grpc.signature import CallSignature
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Buffer, Command
from orbitmq.protocol.remoting.versions import version_ordinal
from orbitmq.protocol.signing import ACCESS_KEY_FIELD, SIGNATURE_FIELD

UNIQUE_KEY_FIELD: Final = "_UNIQUE_KEY_QUERY"
"""Set after signing by clients up to 4.9.3, in requests for a message by its unique key."""

_UNSIGNED_UP_TO: Final = version_ordinal("4.9.3")
_BLOCK_BYTES: Final = 64


class Unproven(enum.Enum):
    """Why nobody knows who calls. The values are labels of a metric."""

    NO_NAME = "no_name"
    UNKNOWN_USER = "unknown_user"
    DISABLED = "disabled"
    WRONG_SIGNATURE = "wrong_signature"


_TakeValues = Callable[[Mapping[str, str]], Iterable[str]]


class UserByName(Protocol):
    def __call__(self, name: str, /) -> User | None: ...


class SigningKey:
    """A secret made ready for HMAC-SHA1: what depends on it alone is computed once, which halves the time of a signature."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: str) -> None:
        key = secret.encode("utf-8", "replace")
        key = (sha1(key).digest() if len(key) > _BLOCK_BYTES else key).ljust(_BLOCK_BYTES, b"\0")
        self._inner = sha1(bytes(byte ^ 0x36 for byte in key))
        self._outer = sha1(bytes(byte ^ 0x5C for byte in key))

    def signature(self, text: bytes, body: Buffer) -> bytes:
        """The signature of a content that ends with `body`, in base64."""
        return b2a_base64(self.digest(text, body), newline=False)

    def digest(self, text: bytes, body: Buffer = b"") -> bytes:
        """The 20 bytes of a signature."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        if body:
            inner.update(body)
        outer.update(inner.digest())
        return outer.digest()


class Authentication:
    def __init__(self, user_of: UserByName) -> None:
        self._user_of = user_of
        self._keys: dict[str, tuple[User, SigningKey]] = {}
        self._orders: dict[tuple[str, ...], _TakeValues] = {}
        """Names of fields as they come in requests that were right, with what takes the values in the order in which they are signed."""

    def caller(self, command: Command) -> User | Unproven:
        """Who has signed a request. Costs 5 us for a send, and a pass over its body."""
        fields = command.fields
        user = self._known(fields.get(ACCESS_KEY_FIELD))
        if isinstance(user, Unproven):
            return user
        given = fields.get(SIGNATURE_FIELD)
        if given is None:
            return Unproven.WRONG_SIGNATURE
        key, signed, body = self._key(user), given.encode("utf-8", "replace"), command.body
        names = tuple(fields)
        take = self._orders.get(names)
        if take is not None:
            is_right = compare_digest(key.signature(_text(take(fields)), body), signed)
        else:
            take = _values_in_order(names)
            is_right = compare_digest(key.signature(_text(take(fields)), body), signed)
            if is_right:
                self._keep(names, take)
        if not is_right and _may_have_unsigned_field(command):
            older = _values_in_order(tuple(name for name in names if name != UNIQUE_KEY_FIELD))
            is_right = compare_digest(key.signature(_text(older(fields)), body), signed)
        return user if is_right else Unproven.WRONG_SIGNATURE

    def caller_of_call(self, signature: CallSignature, text: bytes | None) -> User | Unproven:
        """Who has signed a gRPC call. `text`: what the signature covers, None where the call lacks it. Costs 3 us."""
        user = self._known(signature.access_key)
        if isinstance(user, Unproven):
            return user
        is_right = text is not None and compare_digest(self._key(user).digest(text), signature.digest)
        return user if is_right else Unproven.WRONG_SIGNATURE

    def _known(self, name: str | None) -> User | Unproven:
        """The user of that name, whose signature is to be looked at."""
        if not name:
            return Unproven.NO_NAME
        user = self._user_of(name)
        if user is None:
            self._keys.pop(name, None)
            return Unproven.UNKNOWN_USER
        return Unproven.DISABLED if user.status is UserStatus.DISABLED else user

    def _key(self, user: User) -> SigningKey:
        known = self._keys.get(user.name)
        if known is not None and known[0] is user:
            return known[1]
        key = SigningKey(user.password)
        if len(self._keys) >= USERS_MAX:
            self._keys.clear()
        self._keys[user.name] = user, key
        return key

    def _keep(self, names: tuple[str, ...], take: _TakeValues) -> None:
        if sum(map(len, names)) <= FIELD_ORDER_CHARS_MAX:
            if len(self._orders) >= FIELD_ORDERS_KEPT_MAX:
                self._orders.clear()
            self._orders[names] = take


def _may_have_unsigned_field(command: Command) -> bool:
    return (
        command.code == RequestCode.QUERY_MESSAGE
        and command.version <= _UNSIGNED_UP_TO
        and UNIQUE_KEY_FIELD in command.fields
    )


def _text(values: Iterable[str]) -> bytes:
    return "".join(values).encode("utf-8", "replace")


def _values_in_order(names: Iterable[str]) -> _TakeValues:
    """Takes the values of fields with these names in the order of the names, as Java orders texts; without the signature."""
    ordered = sorted((name for name in names if name != SIGNATURE_FIELD), key=_java_order)
    return itemgetter(*ordered)


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
