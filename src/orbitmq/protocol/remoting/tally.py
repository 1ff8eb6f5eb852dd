"""Counting requests by code and by how they end, the same way for every role that answers them.

Rules of this file
1. Only codes that are served have a counter: a peer can invent numbers, not counters.
2. A request that is answered later counts as handled at once, and as failed when its answer says so. Both counts only
   grow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode


class Tally:
    """Requests of one role since its start."""

    __slots__ = ("failures", "requests", "unsupported")

    def __init__(self) -> None:
        self.requests: dict[int, int] = {}
        """Served code -> requests handled. Whoever handles one adds to it."""
        self.failures: Counter[tuple[int, int]] = Counter()
        """(request code, response code) -> answers other than success."""
        self.unsupported = 0
        """Requests with a code that is not served."""

    def serve(self, codes: Iterable[int]) -> None:
        """These codes are served: each gets its counter."""
        self.requests.update(dict.fromkeys(codes, 0))

    def failed(self, request: int, response: int) -> None:
        """A request was answered with another code than success."""
        self.failures[request, response] += 1

    def handled_by_name(self) -> list[tuple[str, int]]:
        """Requests by the name of their code; those that came at least once."""
        return [(request_name(code), count) for code, count in self.requests.items() if count]

    def failures_by_name(self) -> list[tuple[str, str, int]]:
        """Failures by the names of both codes."""
        return [
            (request_name(request), response_name(response), count)
            for (request, response), count in list(self.failures.items())
        ]


def request_name(code: int) -> str:
    """Name of a request code, or its number."""
    return _REQUESTS.get(code) or str(code)


def response_name(code: int) -> str:
    """Name of a response code, or its number."""
    return _RESPONSES.get(code) or str(code)


_REQUESTS = {int(code): code.name for code in RequestCode}
_RESPONSES = {int(code): code.name for code in ResponseCode}
