"""Tag subscriptions: `TagA || TagB`, tested by hash on the broker and by text on the client.

Rules of this file
1. The broker sees only the 64-bit code of a consume queue unit: the Java hash of the tag, 0 without a tag. Different
   tags may share a code, so the broker lets too much through and the client decides.
2. The corner cases are the Java client's and broker's: empty or `*` is everything; only separators is an error;
   blanks between separators vanish, and what is left may be an empty set, which lets nothing through on the broker
   and everything on the client.

Source: RocketMQ broker behaviour, filtering by tags; RocketMQ store format, tagsCode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from orbitmq.errors import ProtocolError
from orbitmq.limits import wire as limits
from orbitmq.protocol.javahash import java_hash

EVERYTHING: Final = "*"
_SEPARATOR: Final = "||"
_TRIMMED: Final = "".join(map(chr, range(0x21)))


@lru_cache(maxsize=limits.TAG_HASHES_MAX)
def _tag_hash(tag: str) -> int:
    return java_hash(tag)


def tags_code(tag: str | None) -> int:
    """The code of a consume queue unit for a message with this TAGS property: its signed hash, 0 for none or an empty
    one.
    """
    if not tag:
        return 0
    return _tag_hash(tag) if len(tag) <= limits.CACHED_TAG_CHARS_MAX else java_hash(tag)


class TagFilter:
    """One parsed subscription. Immutable; equal filters accept the same messages.

    `tags` and `codes` are what a heartbeat carries; both are empty for a subscription to everything.
    """

    __slots__ = ("accepts_all", "codes", "expression", "tags")

    def __init__(self, expression: str, tags: Iterable[str], codes: Iterable[int], *, accepts_all: bool) -> None:
        self.expression = expression
        self.tags = frozenset(tags)
        self.codes = frozenset(codes)
        self.accepts_all = accepts_all

    @classmethod
    def parse(cls, expression: str | None) -> TagFilter:
        """The filter of a subscription text. ProtocolError when it consists of separators only."""
        if not expression or expression == EVERYTHING:
            return cls(EVERYTHING, (), (), accepts_all=True)
        pieces = expression.split(_SEPARATOR)
        if not any(pieces):
            raise ProtocolError(
                f"the tag expression {expression!r} has no tag between its separators",
                remedy="use '*' for every message, or tags separated by '||'",
            )
        tags = {piece.strip(_TRIMMED) for piece in pieces} - {""}
        return cls(expression, tags, map(tags_code, tags), accepts_all=False)

    @property
    def code_test(self) -> Callable[[int], bool] | None:
        """The broker's test as a plain callable for scanning a consume queue, None when everything passes."""
        return None if self.accepts_all else self.codes.__contains__

    def accepts_tag(self, tag: str | None) -> bool:
        """The client's test of a message it received."""
        return not self.tags or (tag is not None and tag in self.tags)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TagFilter):
            return NotImplemented
        return (self.accepts_all, self.tags, self.codes) == (other.accepts_all, other.tags, other.codes)

    def __hash__(self) -> int:
        return hash((self.accepts_all, self.tags, self.codes))

    def __repr__(self) -> str:
        return f"TagFilter({self.expression!r})"
