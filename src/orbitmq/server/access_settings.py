"""The settings of access: whether callers have to be known, what they then may do, and who is exempt. The keys are RocketMQ's.

Texts are empty where nothing is given. Secrets are kept as they were written, and shown to nobody.
"""

from __future__ import annotations

import msgspec


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Two switches govern every port of the process; without them whoever can connect may do everything."""

    authenticates: bool = False
    """Each request needs the signature of a known user."""

    authorizes: bool = False
    """Each request needs what its row in the table of requests says."""

    unsigned_codes: frozenset[int] = frozenset()
    """Codes that need no signature."""

    unjudged_codes: frozenset[int] = frozenset()
    """Codes that need no permission."""

    initial_user: str = ""
    """JSON of the super user that exists after the start: {"username": ..., "password": ...}."""

    inner_credentials: str = ""
    """JSON of the user as which this server calls others: {"accessKey": ..., "secretKey": ...}."""

    migrates_v1: bool = False
    """Users and policies are made from the files of RocketMQ 4 where there are none of the same name."""

    def __repr__(self) -> str:
        return f"AccessSettings(authenticates={self.authenticates}, authorizes={self.authorizes})"
