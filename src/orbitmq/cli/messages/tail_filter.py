"""Which messages `tail` prints: what a broker cannot filter on is looked at here.

Rules of this file
1. All conditions given must hold. Several values of one kind (two keys) are alternatives.
2. Bodies are looked at as they were sent, decompressed; one that cannot be read matches no condition on bodies.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from orbitmq.protocol.records import Record


class TailFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on a message.

    keys: it carries one of them. properties: it has all these values. contains: its body holds these bytes. pattern: found
    somewhere in its body as UTF-8 text, what is not being replaced.
    """

    keys: Collection[str] = ()
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    contains: bytes | None = None
    pattern: re.Pattern[str] | None = None

    @property
    def takes_all(self) -> bool:
        return not (self.keys or self.properties) and self.contains is None and self.pattern is None

    def takes(self, record: Record) -> bool:
        """Whether all conditions hold."""
        return self.takes_all or (self._takes_properties(record) and self._takes_body(record))

    def _takes_properties(self, record: Record) -> bool:
        if not (self.keys or self.properties):
            return True
        from orbitmq.protocol.properties import Property, decode_properties

        properties = decode_properties(record.properties)
        if self.keys and not set(self.keys) & set(properties.get(Property.KEYS, "").split()):
            return False
        return all(properties.get(name) == value for name, value in self.properties.items())

    def _takes_body(self, record: Record) -> bool:
        if self.contains is None and self.pattern is None:
            return True
        from orbitmq.cli.shared.message_view import body_of
        from orbitmq.errors import ProtocolError

        try:
            body = body_of(record)
        except ProtocolError:
            return False
        if self.contains is not None and self.contains not in body:
            return False
        return self.pattern is None or self.pattern.search(body.decode("utf-8", "replace")) is not None
