"""A mark at the name servers: somebody restarts the brokers of this cluster one by one. Two who do so at once would take two brokers away.

Rules of this file
1. Whoever holds the mark writes it anew every few seconds. One that does not change is of a command that was killed, and whoever comes
   takes it over, with what that one had taken and not given back. No clocks are compared.
2. Name servers know no exchange on condition: after the mark was written it is read again, at all of them, then and each time before it is
   written anew. Who finds another one's there ends.
3. A name server that is away counts for nothing, as long as one answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.cli.shared.output import note
from orbitmq.errors import ClientError, ConnectionLostError, RemoteError, RequestTimeoutError
from orbitmq.limits.cli import RESTART_MARK_LOOKS, RESTART_MARK_S, RESTART_MARK_SETTLE_S
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from orbitmq.client import Client

NAMESPACE: Final = "ORBITMQ_RESTART"
"""Of the name servers' table; the key is the name of the cluster."""


class MarkText(msgspec.Struct, omit_defaults=True):
    """What stands there. token: one run of the command. taken: names of brokers whose write permission it has taken."""

    token: str
    who: str
    count: int = 0
    taken: tuple[str, ...] = ()


class RestartMark:
    def __init__(self, client: Client, cluster: str) -> None:
        self._client = client
        self._key = {"namespace": NAMESPACE, "key": cluster}
        self._own = MarkText(secrets.token_hex(8), f"process {os.getpid()} on {socket.gethostname()}")
        self.left: tuple[str, ...] = ()
        """Names of brokers whose write permission a command had taken that was killed."""

    async def take(self) -> None:
        """ClientError where another command holds the mark."""
        found = await self._read()
        for mark in found.values():
            note(
                f"waiting {RESTART_MARK_LOOKS * RESTART_MARK_S:.0f} s for a sign of {mark.who}, which restarted the cluster before"
            )
        for _ in range(RESTART_MARK_LOOKS if found else 0):
            await asyncio.sleep(RESTART_MARK_S)
            for mark in (await self._read()).values():
                if found.get(mark.token) != mark:
                    raise _held_by(mark)
        self._own.taken = self.left = tuple(sorted({name for mark in found.values() for name in mark.taken}))
        await self._write()
        await asyncio.sleep(RESTART_MARK_SETTLE_S)
        await self._look()

    async def keep(self) -> None:
        """Until it is cancelled. ClientError where another command has taken the mark."""
        while True:
            await asyncio.sleep(RESTART_MARK_S)
            await self._renew()

    async def note_taken(self, name: str) -> None:
        """From now on whoever finds the mark unattended gives this broker its write permission back. ClientError as of `keep`."""
        self._own.taken = (name,)
        await self._renew()

    async def note_given_back(self) -> None:
        self._own.taken = ()
        with contextlib.suppress(ClientError):
            await self._renew()

    async def leave(self) -> None:
        """Take the mark away, if it is this one's."""
        with contextlib.suppress(ClientError):
            await self._look()
            await self._client.name_servers.request_each(
                RequestCode.DELETE_KV_CONFIG, self._key, doing="taking away the mark of a restart"
            )

    async def _renew(self) -> None:
        with contextlib.suppress(ConnectionLostError, RequestTimeoutError, RemoteError):
            await self._look()
            await self._write()

    async def _look(self) -> None:
        for mark in (await self._read()).values():
            if mark.token != self._own.token:
                raise _held_by(mark)

    async def _read(self) -> dict[str, MarkText]:
        """By token what the name servers have. What is no mark is none."""
        answers = await self._client.name_servers.request_each(
            RequestCode.GET_KV_CONFIG,
            self._key,
            doing="reading whether the cluster is restarted already",
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        found: dict[str, MarkText] = {}
        for answer in answers:
            with contextlib.suppress(msgspec.DecodeError):
                mark = msgspec.json.decode(answer.fields.get("value", ""), type=MarkText)
                found[mark.token] = max(mark, found.get(mark.token, mark), key=lambda one: one.count)
        return found

    async def _write(self) -> None:
        self._own.count += 1
        await self._client.name_servers.request_each(
            RequestCode.PUT_KV_CONFIG,
            {**self._key, "value": msgspec.json.encode(self._own).decode()},
            doing="marking that the cluster is restarted",
        )


def _held_by(mark: MarkText) -> ClientError:
    return ClientError(
        f"the cluster is restarted by another command already: {mark.who}",
        remedy="wait for its end; one that was killed is passed over some seconds later",
    )
