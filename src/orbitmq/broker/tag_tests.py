"""The tag tests of pulls: an expression is parsed once while it is repeated, and all that wait have a bound together.

Rules of this file
1. An expression that would hold the loop while it is parsed is refused.
2. A test counts as long as anybody has it: a held pull, one that waits to be read, the cache. Where too many tags are had, a
   pull with another long list is refused; whoever asks for everything, or for a few tags, is not.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from orbitmq.broker.refusal import Refusal
from orbitmq.errors import ProtocolError
from orbitmq.limits.broker import PULL_EXPRESSION_CHARS_MAX, PULL_TAGS_MAX
from orbitmq.limits.wire import FILTER_CACHED_CHARS_MAX, FILTERS_CACHED_MAX
from orbitmq.protocol.filters import TagFilter
from orbitmq.protocol.remoting.commands import ResponseCode

FEW: Final = 4
"""A test of so many tags takes less than the pull that has it, and is not counted."""

Accepts = Callable[[int], bool] | None


class TagTests:
    """The tests of tags that pulls of one broker have."""

    def __init__(self) -> None:
        self._cached = lru_cache(FILTERS_CACHED_MAX)(self._parse)
        self._had = 0
        self._given_back: deque[int] = deque()
        """Counts of tests that nobody has any more; the last to have one may be another thread."""

    @property
    def tags_had(self) -> int:
        """Tags in the tests that somebody has."""
        while self._given_back:
            self._had -= self._given_back.popleft()
        return self._had

    def of(self, expression: str) -> Accepts:
        """The test, None when everything passes. Raises Refusal."""
        return self._cached(expression) if len(expression) <= FILTER_CACHED_CHARS_MAX else self._parse(expression)

    def _parse(self, expression: str) -> Accepts:
        if len(expression) > PULL_EXPRESSION_CHARS_MAX:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"a tag expression of {len(expression)} characters is not taken, {PULL_EXPRESSION_CHARS_MAX} at most",
                {},
            )
        try:
            parsed = TagFilter.parse(expression)
        except ProtocolError as error:
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error), {}) from error
        count = len(parsed.codes)
        if count > FEW:
            if self.tags_had + count > PULL_TAGS_MAX:
                raise Refusal(
                    ResponseCode.SYSTEM_BUSY, f"pulls that wait have {self.tags_had} tags, {PULL_TAGS_MAX} at most", {}
                )
            self._had += count
            weakref.finalize(parsed.codes, self._given_back.append, count).atexit = False
        return parsed.code_test
