"""Signatures of requests: who calls, proven with a secret that does not travel.

The content is the values of all ext fields but `Signature`, in the order of their names, followed by the body. The signature is
its HMAC-SHA1 with the caller's secret, in base64. Nothing in it is a time or a number used once, so a signed request that somebody
has overheard can be sent again: TLS is what stops that.

(RocketMQ remoting, ACL and auth: signature.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.frame import Buffer

ACCESS_KEY_FIELD: Final = "AccessKey"
SIGNATURE_FIELD: Final = "Signature"
SECURITY_TOKEN_FIELD: Final = "SecurityToken"
SIGNING_FIELDS: Final = (ACCESS_KEY_FIELD, SIGNATURE_FIELD, SECURITY_TOKEN_FIELD)
"""What a signed request says of its caller. None of it is for anybody but the server that is asked."""


def signature(secret_key: str, fields: Mapping[str, str], body: Buffer = b"") -> str:
    """The signature of a request with these ext fields; one among them does not count."""
    import base64
    import hmac  # a program that signs nothing starts without them

    values = [value for name, value in sorted(fields.items()) if name != SIGNATURE_FIELD]
    content = b"".join(("".join(values).encode(), body))
    return base64.b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()


class Credentials(msgspec.Struct, frozen=True):
    """Who calls, and the secret that proves it. security_token: goes with credentials that were lent for some time.

    Neither secret nor token is ever printed: not by this, and in no error.
    """

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None and name == "security_token":
                continue
            if not isinstance(value, str) or not value or value != value.strip() or not value.isprintable():
                raise ConfigurationError(f"{name} must be text of one line, not empty and without blanks around it")

    def signed(self, fields: Mapping[str, str], body: Buffer = b"") -> dict[str, str]:
        """These ext fields, with the caller's name and signature. Costs some microseconds and a copy of the body."""
        signed = {**fields, ACCESS_KEY_FIELD: self.access_key}
        if self.security_token is not None:
            signed[SECURITY_TOKEN_FIELD] = self.security_token
        signed[SIGNATURE_FIELD] = signature(self.secret_key, signed, body)
        return signed

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """What `rich` prints; without this all fields."""
        return [("access_key", self.access_key)]
