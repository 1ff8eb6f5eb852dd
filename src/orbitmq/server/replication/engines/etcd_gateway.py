"""Questions to an etcd of several endpoints, by its JSON gateway: in turn until one answers what can be believed.

Rules of this file
1. A question may be asked at several endpoints, and twice at one: all of them do no harm then (`etcd_questions`). What counts is the
   answer that came; where none came, nothing is known.
2. The endpoint that answered last is asked first.
3. Whoever says its name has a token, which is asked for anew when etcd knows it no more, once for a question.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final, TypeVar

from orbitmq.errors import words_of
from orbitmq.limits.engine import (
    ENGINE_DENIED_MS,
    ENGINE_ENDPOINT_MS,
    ENGINE_PASSWORD_BYTES_MAX,
    ENGINE_QUESTION_MS,
)
from orbitmq.replication.engine_address import EngineAddress
from orbitmq.server.replication.engines import etcd_questions as questions
from orbitmq.server.replication.engines.endpoint import EndpointConnections
from orbitmq.server.replication.engines.etcd_answers import (
    WRONG_PASSWORD,
    Belief,
    EtcdAnswerError,
    EtcdToken,
    EtcdWatched,
    read_answer,
    read_streamed,
)
from orbitmq.server.replication.engines.group_engine import EngineError
from orbitmq.server.replication.engines.http_link import HttpLinkError

WHAT_TO_DO: Final = (
    "see that etcd runs, has a leader, and is reached from here; without it nothing stops until a member fails"
)

Believed = TypeVar("Believed")


class EtcdGateway:
    def __init__(self, address: EngineAddress, password_file: str = "", question_ms: int = ENGINE_QUESTION_MS) -> None:
        """`password_file`: read for each token. `question_ms`: all endpoints together have so long for an answer."""
        self.address = address
        self._password_file = password_file
        self._question_s = question_ms / 1_000
        self._endpoints = [EndpointConnections(place, address) for place in address.endpoints]
        self._token = ""
        self._denied: tuple[EtcdAnswerError | None, float] = None, 0.0
        """That the password is wrong, and until when it is not tried again."""
        self.belief = Belief()
        self.is_closed = False

    async def ask(self, what: str, path: str, body: bytes, read: Callable[[int, bytes], Believed]) -> Believed:
        """`read` makes of status and body what was asked for, or raises EtcdAnswerError. Raises EngineError, where `what` says what was
        not answered."""
        clock = asyncio.get_running_loop().time
        end = clock() + self._question_s
        failures: list[EtcdAnswerError] = []
        for left, endpoint in zip(range(len(self._endpoints), 0, -1), tuple(self._endpoints), strict=True):
            if self.is_closed:
                break
            limit = end - clock() if left == 1 else min(ENGINE_ENDPOINT_MS / 1_000, (end - clock()) / 2)
            try:
                async with asyncio.timeout(limit):
                    return await self._ask_there(endpoint, path, body, read)
            except TimeoutError:
                endpoint.cut()
                failures.append(EtcdAnswerError(f"{endpoint.place}: no answer within {limit * 1_000:.0f} ms"))
            except HttpLinkError as error:
                endpoint.cut()
                failures.append(EtcdAnswerError(f"{endpoint.place}: {error.why}", remedy=error.remedy))
            except OSError as error:
                endpoint.cut()
                failures.append(EtcdAnswerError(f"{endpoint.place}: {words_of(error)}"))
            except EtcdAnswerError as error:
                failures.append(EtcdAnswerError(f"{endpoint.place}: {error.why}", remedy=error.remedy))
            self._ask_last(endpoint)
        raise self._failed(what, failures)

    async def changes(self, body: bytes) -> AsyncGenerator[None, None]:
        """What one watch hears at the endpoint that answers, its beginning first; ends when that endpoint does not go on."""
        endpoint = self._endpoints[0]
        try:
            async with asyncio.timeout(self._question_s):
                lines = endpoint.stream(questions.WATCH, body, await self._token_of(endpoint))
                line = await anext(lines, b"")
            async with aclosing(lines):
                while line:
                    self._hear(line)
                    yield
                    line = await anext(lines, b"")
        except EtcdAnswerError as error:
            self._token = "" if error.wants_token else self._token
        except (HttpLinkError, OSError, TimeoutError):
            pass
        self._ask_last(endpoint)

    def _hear(self, line: bytes) -> None:
        watched = read_streamed(EtcdWatched, 200, line)
        self.belief.same_cluster(watched.header)
        if watched.canceled:
            raise EtcdAnswerError(watched.cancel_reason, wants_token=True)

    def close(self) -> None:
        """What is under way fails."""
        self.is_closed = True
        for endpoint in self._endpoints:
            endpoint.cut()

    async def _ask_there(
        self, endpoint: EndpointConnections, path: str, body: bytes, read: Callable[[int, bytes], Believed]
    ) -> Believed:
        token = await self._token_of(endpoint)
        try:
            return read(*await endpoint.ask(path, body, token))
        except EtcdAnswerError as error:
            if not (error.wants_token and self.address.user):
                raise
        if self._token == token:
            self._token = ""
        return read(*await endpoint.ask(path, body, await self._token_of(endpoint)))

    async def _token_of(self, endpoint: EndpointConnections) -> str:
        """Empty for who does not say its name."""
        if not self.address.user or self._token:
            return self._token
        now = asyncio.get_running_loop().time()
        denied, until = self._denied
        if denied is not None and now < until:
            raise denied
        body = questions.authenticate(self.address.user, _password(self._password_file))
        try:
            found = read_answer(EtcdToken, *await endpoint.ask(questions.AUTHENTICATE, body, ""))
        except EtcdAnswerError as error:
            if WRONG_PASSWORD in error.why:
                self._denied = error, now + ENGINE_DENIED_MS / 1_000
            raise
        self.belief.same_cluster(found.header)
        self._token = found.token
        return self._token

    def _ask_last(self, endpoint: EndpointConnections) -> None:
        if self._endpoints[0] is endpoint:
            self._endpoints.append(self._endpoints.pop(0))

    def _failed(self, what: str, failures: list[EtcdAnswerError]) -> EngineError:
        remedies = [failure.remedy for failure in failures if failure.remedy]
        why = "; ".join(failure.why for failure in failures) or "it is closed"
        return EngineError(what, self.address.shown, why, remedies[0] if remedies else WHAT_TO_DO)


def _password(file: str) -> str:
    """Its first line. A change counts with the next token."""
    try:
        with Path(file).open("rb") as opened:
            return opened.read(ENGINE_PASSWORD_BYTES_MAX + 1)[:ENGINE_PASSWORD_BYTES_MAX].decode().splitlines()[0]
    except (OSError, ValueError, IndexError) as error:
        raise EtcdAnswerError(
            f"no password can be read in {file or 'no file'}: {error}",
            remedy="let replicationEnginePasswordFile name it",
        ) from error
