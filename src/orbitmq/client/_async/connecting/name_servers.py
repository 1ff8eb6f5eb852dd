"""Asking the name servers.

Rules of this file
1. One of them is asked; another only when it does not answer. An answer with an error code is an answer.
2. A connection that breaks under a question may have been dead for long, closed by something on the way: the same server is asked
   once more over a new one. Questions change nothing, so that is safe, as is a change that says the same again (`request_each`);
   other changes go through `request_all` and are not repeated.
"""

from __future__ import annotations

from collections.abc import Container

from orbitmq.client._async.connecting.network import SUCCESS_ONLY, Network
from orbitmq.client.addresses import NameServerChoice
from orbitmq.errors import ConnectionLostError, RemoteError, RequestTimeoutError
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Buffer, Command


class NameServers:
    """Requests to whichever name server answers."""

    def __init__(self, network: Network, choice: NameServerChoice, timeout_ms: int) -> None:
        self.network = network
        self._timeout_ms = timeout_ms
        self.choice = choice

    async def request(
        self,
        code: RequestCode,
        fields: dict[str, str] | None = None,
        body: Buffer = b"",
        *,
        doing: str,
        accept: Container[int] = SUCCESS_ONLY,
        timeout_ms: int | None = None,
    ) -> Command:
        """The answer of the first name server that gives one, each within the time limit.

        `RemoteError` for codes outside `accept`; `ConnectionLostError` when none answers.
        """
        failures: list[str] = []
        for address in self.choice.candidates():
            try:
                return await self._ask(address, code, fields, body, timeout_ms or self._timeout_ms, doing, accept)
            except RemoteError as error:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    error.remedy = (
                        f"is {address} a name server? Brokers listen on a port of their own and do not know this"
                    )
                raise
            except (ConnectionLostError, RequestTimeoutError) as error:
                failures.append(error.args[0])
                self.choice.failed(address)
        raise ConnectionLostError(
            f"no name server answered while {doing}: {'; '.join(failures)}",
            request_sent=False,
            remedy="check the addresses of the name servers, and that one runs there",
        )

    async def _ask(
        self,
        address: str,
        code: RequestCode,
        fields: dict[str, str] | None,
        body: Buffer,
        timeout_ms: int,
        doing: str,
        accept: Container[int],
    ) -> Command:
        try:
            return await self.network.request(
                address, code, fields, body, timeout_ms=timeout_ms, doing=doing, accept=accept
            )
        except ConnectionLostError as error:
            if not error.request_sent:
                raise
        return await self.network.request(
            address, code, fields, body, timeout_ms=timeout_ms, doing=doing, accept=accept
        )

    async def request_each(
        self,
        code: RequestCode,
        fields: dict[str, str] | None = None,
        *,
        doing: str,
        accept: Container[int] = SUCCESS_ONLY,
    ) -> list[Command]:
        """The answers of all name servers that give one. `RemoteError` for codes outside `accept`; the last failure when none answers."""
        answers: list[Command] = []
        failure: ConnectionLostError | RequestTimeoutError | None = None
        for address in self.choice:
            try:
                answers.append(await self._ask(address, code, fields, b"", self._timeout_ms, doing, accept))
            except (ConnectionLostError, RequestTimeoutError) as error:
                failure = error
        if failure is not None and not answers:
            raise failure
        return answers

    async def request_all(
        self, code: RequestCode, fields: dict[str, str] | None = None, body: Buffer = b"", *, doing: str
    ) -> None:
        """The same request to every name server, as changes of their data need, also where one of them is away; the first failure is
        raised. A refusal ends it."""
        failure: ConnectionLostError | RequestTimeoutError | None = None
        for address in self.choice:
            try:
                await self.network.request(address, code, fields, body, timeout_ms=self._timeout_ms, doing=doing)
            except (ConnectionLostError, RequestTimeoutError) as error:
                failure = failure or error
        if failure is not None:
            raise failure
