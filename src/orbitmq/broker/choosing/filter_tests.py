"""The tests that expressions of consumers stand for: each is made once while it is repeated, and all that are had have a bound.

Rules of this file
1. An expression that would hold the loop while it is parsed is refused.
2. A test counts as long as anybody has it: a held pull, one that waits to be read, the cache. Where too many are had, another long one
   is refused; whoever asks for everything, or for little, is not.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from orbitmq.broker.refusal import Refusal
from orbitmq.errors import ProtocolError
from orbitmq.limits.broker import (
    EXPRESSIONS_CACHED_CHARS_MAX,
    PULL_EXPRESSION_CHARS_MAX,
    PULL_EXPRESSIONS_CHARS_MAX,
    PULL_TAGS_MAX,
)
from orbitmq.limits.wire import EXPRESSION_CHARS_MAX, FILTER_CACHED_CHARS_MAX, FILTERS_CACHED_MAX
from orbitmq.protocol.filtering.expression import PropertyFilter
from orbitmq.protocol.filtering.tags import TagFilter
from orbitmq.protocol.remoting.commands import ResponseCode

FEW_TAGS: Final = 4
"""A test of so many tags takes less than the pull that has it, and is not counted."""

Accepts = Callable[[int], bool] | None


class FilterTests:
    """The tests that consumers of one broker ask for."""

    def __init__(self) -> None:
        self._tags = lru_cache(FILTERS_CACHED_MAX)(self._parse_tags)
        self._tags_had = _Had()
        self._expressions: OrderedDict[str, PropertyFilter | str] = OrderedDict()
        """The filters of the expressions used last, or why there is none."""
        self._cached_chars = 0
        self._chars_had = _Had()

    def of_tags(self, expression: str) -> Accepts:
        """The test of a unit's tags code, None when everything passes. Raises Refusal."""
        if len(expression) <= FILTER_CACHED_CHARS_MAX:
            return self._tags(expression)
        return self._parse_tags(expression)

    def of_properties(self, expression: str) -> PropertyFilter:
        """The test of a message's properties; the same object while the expression is in the cache. Raises Refusal
        SUBSCRIPTION_PARSE_FAILED for an expression that does not compile."""
        found = self._expressions.get(expression)
        if found is None:
            found = self._compile(expression)
            self._keep(expression, found)
        else:
            self._expressions.move_to_end(expression)
        if isinstance(found, str):
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, found, {})
        return found

    def _parse_tags(self, expression: str) -> Accepts:
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
        if count > FEW_TAGS:
            had = self._tags_had.total()
            if had + count > PULL_TAGS_MAX:
                raise Refusal(ResponseCode.SYSTEM_BUSY, f"pulls that wait have {had} tags, {PULL_TAGS_MAX} at most", {})
            self._tags_had.add(parsed.codes, count)
        return parsed.code_test

    def _compile(self, expression: str) -> PropertyFilter | str:
        had = self._chars_had.total()
        is_read = len(expression) <= EXPRESSION_CHARS_MAX
        if is_read and had + len(expression) > PULL_EXPRESSIONS_CHARS_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"the filter expressions of pulls have {had} characters, {PULL_EXPRESSIONS_CHARS_MAX} at most",
                {},
            )
        try:
            compiled = PropertyFilter(expression)
        except ProtocolError as error:
            return f"the filter expression does not compile: {error}"
        self._chars_had.add(compiled, len(expression))
        return compiled

    def _keep(self, expression: str, found: PropertyFilter | str) -> None:
        """Cache it in the place of those that were not used for longest. One that is too long is known at a glance."""
        if len(expression) > EXPRESSION_CHARS_MAX:
            return
        self._expressions[expression] = found
        self._cached_chars += len(expression)
        while self._cached_chars > EXPRESSIONS_CACHED_CHARS_MAX or len(self._expressions) > FILTERS_CACHED_MAX:
            oldest, _ = self._expressions.popitem(last=False)
            self._cached_chars -= len(oldest)


class _Had:
    """How much the things are worth together that somebody still has."""

    def __init__(self) -> None:
        self._total = 0
        self._given_back: deque[int] = deque()
        """Of things that nobody has any more; the last to have one may be another thread."""

    def add(self, thing: object, amount: int) -> None:
        self._total += amount
        weakref.finalize(thing, self._given_back.append, amount).atexit = False

    def total(self) -> int:
        while self._given_back:
            self._total -= self._given_back.popleft()
        return self._total
