"""One endpoint of an engine: its connections, and TLS.

Rules of this file
1. A question may be asked twice here: where a connection that was kept has ended meanwhile, over a new one. Whoever asks has
   questions that can be.
2. When it fails to answer, all its connections are cut, watches too: who listens there would hear nothing.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from orbitmq.limits.engine import ENGINE_IDLE_CONNECTIONS_MAX
from orbitmq.replication.engine_address import EngineAddress, EngineEndpoint
from orbitmq.server.replication.engines.http_link import HttpLink, HttpLinkAnswer, HttpLinkError, open_link


class EndpointConnections:
    def __init__(self, place: EngineEndpoint, address: EngineAddress) -> None:
        self.place = place
        self._address = address
        self._idle: list[HttpLink] = []
        self._used: set[HttpLink] = set()

    async def ask(self, path: str, body: bytes, token: str) -> HttpLinkAnswer:
        """Raises HttpLinkError and OSError. To be cancelled when it takes too long."""
        if (kept := self._kept()) is not None:
            try:
                return await self._asked(kept, path, body, token)
            except (HttpLinkError, OSError):
                pass
        return await self._asked(await self._open(), path, body, token)

    async def stream(self, path: str, body: bytes, token: str) -> AsyncGenerator[bytes, None]:
        """Lines of an answer that goes on. Raises as `ask`."""
        with self._using(await self._open()) as link:
            async for line in link.stream(path, body, token):
                yield line

    def cut(self) -> None:
        """End all connections, and what is under way over them."""
        for link in (*self._idle, *self._used):
            link.close()
        self._idle.clear()

    async def _asked(self, link: HttpLink, path: str, body: bytes, token: str) -> HttpLinkAnswer:
        with self._using(link):
            return await link.ask(path, body, token)

    @contextmanager
    def _using(self, link: HttpLink) -> Iterator[HttpLink]:
        self._used.add(link)
        try:
            yield link
        finally:
            self._used.discard(link)
            if link.is_idle and len(self._idle) < ENGINE_IDLE_CONNECTIONS_MAX:
                self._idle.append(link)
            else:
                link.close()

    def _kept(self) -> HttpLink | None:
        while self._idle:
            link = self._idle.pop()
            if link.is_idle:
                return link
            link.close()
        return None

    async def _open(self) -> HttpLink:
        return await open_link(self.place.host, self.place.port, self._tls())

    def _tls(self) -> ssl.SSLContext | None:
        """Made for each connection, so that files which were replaced count. Raises HttpLinkError."""
        address = self._address
        if not address.tls:
            return None
        file = address.ca
        try:
            context = ssl.create_default_context(cafile=address.ca or None)
            if file := address.cert:
                # A password of the key that is none: OpenSSL would ask for it at the terminal.
                context.load_cert_chain(address.cert, address.key or None, password="")
        except OSError as error:
            raise HttpLinkError(f"TLS by {file or 'the machine'}: {error}") from error
        return context
