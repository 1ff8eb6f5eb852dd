"""Asking servers from which nothing comes whether they are still there.

A broker may hold a pull for half a minute, so a client that only waits does not notice that its broker is frozen or cut off: the system
keeps such connections.

Rules of this file
1. Only who owes an answer is asked, when nothing came from it for `CLIENT_SILENCE_LOOKS` looks. Any answer counts.
2. Who does not answer loses its connection (rule 6 of `transport`), and with it every call ends. Callers look where the routes lead then.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from orbitmq.client._async.connecting.network import Network
from orbitmq.client._async.runtime import all_of, sleep_ms
from orbitmq.errors import ClientError
from orbitmq.limits.client import CLIENT_QUESTION_TIMEOUT_MS, CLIENT_SILENCE_LOOK_MS, CLIENT_SILENCE_LOOKS


class _Heard(NamedTuple):
    """What had come when it was looked, and for how many looks it has been so."""

    received_count: int
    looks_count: int


class Silence:
    """Of all servers of one client."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._heard: dict[str, _Heard] = {}

    async def look(self) -> None:
        """Whoever has been silent for too long is asked; returns when all of them answered or were given up."""
        heard: dict[str, _Heard] = {}
        silent: list[str] = []
        for address, count in self._network.waited_for():
            before = self._heard.get(address)
            looks = before.looks_count + 1 if before is not None and before.received_count == count else 0
            if looks >= CLIENT_SILENCE_LOOKS:
                silent.append(address)
            else:
                heard[address] = _Heard(count, looks)
        self._heard = heard
        if silent:
            await all_of([self._ask(address) for address in silent])

    async def look_forever(self) -> None:
        while True:
            await sleep_ms(CLIENT_SILENCE_LOOK_MS)
            await self.look()

    async def _ask(self, address: str) -> None:
        with contextlib.suppress(ClientError):
            await self._network.ask(address, CLIENT_QUESTION_TIMEOUT_MS)
