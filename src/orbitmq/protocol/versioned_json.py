"""Bodies of records of ours that are JSON with a `version`: reading one, and refusing those of newer programs.

Rules of this file
1. A field that older programs may ignore can be added to a version. Whatever they would get wrong without it needs the next one.
2. A record that cannot be read is reported with where it was; it is never taken for another.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from orbitmq.errors import RecordError

Body = TypeVar("Body")


class _VersionOnly(msgspec.Struct):
    version: int


def decode_versioned(
    data: bytes, decoder: msgspec.json.Decoder[Body], version: int, *, what: str, where: str, remedy: str
) -> Body:
    """What `decoder` makes of it. RecordError, which says `what` it was and `where`, when it is none or of another version."""
    try:
        found = msgspec.json.decode(data, type=_VersionOnly).version
        if found == version:
            return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"the record of {what} at {where} cannot be read: {error}", remedy=remedy) from error
    raise RecordError(
        f"the record of {what} at {where} has version {found}, this program knows version {version}",
        remedy="run the release of orbitmq that wrote it, or a later one",
    )
