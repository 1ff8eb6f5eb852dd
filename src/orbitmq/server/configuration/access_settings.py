"""The settings of access: whether callers have to be known, what they then may do, and who is exempt. The keys are RocketMQ's.

Texts are empty where nothing is given. Secrets are kept as they were written, and shown to nobody.
"""

from __future__ import annotations

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.grpc.rpcs import PACKAGE, RPCS, Rpc

_CALLS = {row.full_request: row.rpc for row in RPCS.values()}
"""RPCs by the full name of their request message, as RocketMQ's lists name them."""


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Two switches govern every port of the process; without them whoever can connect may do everything."""

    authenticates: bool = False
    """Each request needs the signature of a known user."""

    authorizes: bool = False
    """Each request needs what its row in the table of requests says."""

    authentication_whitelist: str = ""
    """Codes, and request messages of gRPC, that need no signature, `,` between."""

    authorization_whitelist: str = ""
    """Codes, and request messages of gRPC, that are not judged, `,` between."""

    initial_user: str = ""
    """JSON of the super user that exists after the start: {"username": ..., "password": ...}."""

    inner_credentials: str = ""
    """JSON of the user as which this server calls others: {"accessKey": ..., "secretKey": ...}."""

    key_file: str = ""
    """File of the keys that encrypt the table of users; empty: it is not encrypted."""

    migrates_v1: bool = False
    """Users and policies are made from the files of RocketMQ 4 where there are none of the same name."""

    plain: bool = False
    """The access control of RocketMQ 4: each request needs the signature of an account, and its permissions."""

    plain_folder: str = ""
    """Where `plain_acl.yml` lies; empty: `conf` in the data directory."""

    guards_name_server: bool = False
    """What changes the name server needs the signature of a user who may change the cluster."""

    @property
    def unsigned(self) -> frozenset[int | Rpc]:
        return _exempt("authenticationWhitelist", self.authentication_whitelist)

    @property
    def unjudged(self) -> frozenset[int | Rpc]:
        return _exempt("authorizationWhitelist", self.authorization_whitelist)

    def switches(self) -> dict[str, bool]:
        """The switches of the broker, by key."""
        return {
            "authenticationEnabled": self.authenticates,
            "authorizationEnabled": self.authorizes,
            "aclEnable": self.plain,
        }

    def check(self) -> None:
        """Raises ConfigurationError for a list that cannot be read, and for switches that would leave open a door meant to be shut."""
        if self.authorizes and not self.authenticates:
            raise ConfigurationError(
                "authorizationEnabled = true without authenticationEnabled: everybody could be whoever they say",
                remedy="set authenticationEnabled = true as well",
            )
        if self.plain and (self.authenticates or self.authorizes):
            raise ConfigurationError(
                "aclEnable = true together with authenticationEnabled or authorizationEnabled: there is one way of knowing callers",
                remedy="remove aclEnable; migrateAuthFromV1Enabled and `orbitmq access import` move the accounts over",
            )
        _ = self.unsigned, self.unjudged

    def __repr__(self) -> str:
        return f"AccessSettings(authenticates={self.authenticates}, authorizes={self.authorizes})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """What `rich` prints; without this all fields."""
        return [("authenticates", self.authenticates), ("authorizes", self.authorizes)]


def _exempt(key: str, text: str) -> frozenset[int | Rpc]:
    """ConfigurationError for what is no code and no request message."""
    found: set[int | Rpc] = set()
    for part in filter(None, map(str.strip, text.split(","))):
        rpc = _CALLS.get(part)
        if rpc is not None:
            found.add(rpc)
        elif part.isascii() and part.isdigit() and len(part) < 10:
            found.add(int(part))
        else:
            raise ConfigurationError(
                f"{key} has {part[:64]!r}, which is no code of a request and no request message of gRPC",
                remedy=f"give numbers and full names such as {PACKAGE}.SendMessageRequest, with , between",
            )
    return frozenset(found)
