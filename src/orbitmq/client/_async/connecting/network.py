"""Connections of one client: one per server address, made when needed and made again when lost.

Rules of this file
1. An address is dialled once at a time, whoever asks: all callers wait for the same connection, each within its own time, and when
   it cannot be made all of them hear so.
2. Nothing is retried here but by `insist`, with one exception of the protocol: a server that answers GO_AWAY is about to stop, so the
   request goes once more over a new connection, which a load balancer may lead elsewhere.
3. An error code becomes `RemoteError` in `request`; `invoke` gives every answer as it is.
4. A server that was silent until its connection was closed is asked something over a new one first: a frozen process, or one behind a
   network that loses everything, takes connections.
5. What is asked first over a new connection is answered before anything else is asked, or was given its time. A server that had nothing
   to be asked then, such as a broker in no route yet, is asked before the first request after there is something.
6. Every request leaves through `exchange` or `post`, which sign it if this client has credentials. Answers are never signed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator
from typing import Final

from orbitmq.client._async.connecting.transport import Channel, Dial, OnRequest, Request
from orbitmq.client._async.connecting.troubles import AWAY, Troubles
from orbitmq.client._async.runtime import Event, HomeLoop, Tasks, monotonic_ms, sleep_ms, wait_event
from orbitmq.client.addresses import no_connection
from orbitmq.client.answers import remote_error
from orbitmq.errors import ConnectionLostError, RequestTimeoutError
from orbitmq.limits.client import (
    CLIENT_GOODBYE_MS,
    CLIENT_GREETING_TIMEOUT_MS,
    CLIENT_QUESTION_AGAIN_TIMEOUT_MS,
    CLIENT_TROUBLE_QUIET_MS,
    SEND_LAST_ATTEMPT_MS,
    SEND_REPEAT_PAUSE_MS,
    SEND_REPEAT_PAUSE_MS_MAX,
)
from orbitmq.protocol.remoting.codes import NO_APPEND, NOT_READ, RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Buffer, Command, request
from orbitmq.protocol.signing import Credentials

SUCCESS_ONLY: Container[int] = (ResponseCode.SUCCESS,)


ONLY_ONCE: Final = frozenset(
    {
        RequestCode.PROMOTE_SLAVE,
        RequestCode.DEMOTE_MASTER,
        RequestCode.RESEED_SLAVE,
        RequestCode.FORGET_SLAVE,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_DELETE_ACL,
    }
)
"""Requests whose repeat would do something else, or be told that there is nothing to do."""


class _Dialling:
    """A connection that is being made, for all who wait for it."""

    __slots__ = ("channel", "done", "error")

    def __init__(self) -> None:
        self.done = Event()
        self.channel: Channel | None = None
        self.error: ConnectionLostError | None = None


class Network:
    """Calls by address.

    on_connected: told the address after every successful dial.
    credentials: what requests are signed with, if they are. A `SendRequest` has no place for them.
    """

    def __init__(
        self,
        dial: Dial,
        connect_timeout_ms: int,
        on_request: OnRequest,
        on_connected: Callable[[str], None],
        credentials: Credentials | None = None,
    ) -> None:
        self._credentials = credentials
        self._dial = dial
        self._connect_timeout_ms = connect_timeout_ms
        self._on_request = on_request
        self._on_connected = on_connected
        self._channels: dict[str, Channel] = {}
        self._dialling: dict[str, _Dialling] = {}
        self._tasks = Tasks("network")
        self._silent: dict[str, int] = {}
        """Servers that were silent until their connection was closed, and how often each was asked in vain since."""
        self._closed = False
        self._emptied = Event()
        self.home = HomeLoop()
        self.on_unreachable: Callable[[str], None] = lambda address: None
        """Told the address after every dial that failed, and every request that was not answered in time."""
        self.question: Callable[[], Command | None] = lambda: None
        """Something that every server answers, if there is anything to ask."""
        self.greeting: Callable[[str], Command | None] = lambda address: None
        """What a server is asked first over a new connection, if there is anything: a broker does not know who lives here."""
        self.name_of: Callable[[str], str] = lambda address: address
        """What a server is called in the log."""
        self.is_missed: Callable[[str], bool] = lambda address: True
        """Whether somebody misses a server at once; a name server is asked every half a minute."""
        self.successor: Callable[[str], str] = lambda address: address
        """Where the broker is by now that was at an address."""
        self.troubles = Troubles()
        self._met: set[str] = set()
        """Servers that there was a connection to."""
        self._ungreeted: set[str] = set()
        """Servers that had nothing to be asked first when their connection was made."""
        self.on_unwilling: Callable[[str], None] = lambda address: None
        """Told the address after every answer that says that this broker does not do what a master does."""

    async def request(
        self,
        address: str,
        code: RequestCode,
        fields: dict[str, str] | None = None,
        body: Buffer = b"",
        *,
        timeout_ms: int,
        doing: str,
        accept: Container[int] = SUCCESS_ONLY,
    ) -> Command:
        """The answer, if its code is among `accept`; else `RemoteError`, worded with `doing`."""
        answer = await self.invoke(address, code, fields, body, timeout_ms=timeout_ms)
        if answer.code not in accept:
            raise remote_error(answer.code, answer.remark, address, doing)
        return answer

    async def insist(
        self,
        address: str,
        code: RequestCode,
        fields: dict[str, str] | None = None,
        body: Buffer = b"",
        *,
        timeout_ms: int,
        doing: str,
        accept: Container[int] = SUCCESS_ONLY,
    ) -> Command:
        """As `request`, and again within the same time when the server goes away, to whoever has its place then.

        A server that was never connected to is asked once, and so is who may have done something of `ONLY_ONCE`.
        """
        began_ms, attempts_count, was_sent = monotonic_ms(), 0, False
        deadline_ms = began_ms + timeout_ms
        end_ms = deadline_ms - min(SEND_LAST_ATTEMPT_MS, timeout_ms // 5)
        pause_ms = SEND_REPEAT_PAUSE_MS
        while True:
            target = self.successor(address)
            left_ms = max(1, deadline_ms - monotonic_ms())
            try:
                return await self.request(target, code, fields, body, timeout_ms=left_ms, doing=doing, accept=accept)
            except ConnectionLostError as error:
                attempts_count, was_sent = attempts_count + 1, was_sent or error.request_sent
                room_ms = end_ms - monotonic_ms()
                was_met = address in self._met or target in self._met
                if room_ms <= 0 or not was_met or self._closed or (error.request_sent and code in ONLY_ONCE):
                    tried = f"{attempts_count} attempts in {monotonic_ms() - began_ms} ms" if attempts_count > 1 else ""
                    done = "it may have been carried out" if was_sent else ""
                    told = "".join(f"; {each}" for each in (tried, done) if each)
                    raise ConnectionLostError(
                        f"{doing}: {error.args[0]}{told}", request_sent=was_sent, remedy=error.remedy
                    ) from error
            await sleep_ms(min(pause_ms, room_ms))
            pause_ms = min(2 * pause_ms, SEND_REPEAT_PAUSE_MS_MAX)

    async def invoke(
        self,
        address: str,
        code: RequestCode,
        fields: dict[str, str] | None = None,
        body: Buffer = b"",
        *,
        timeout_ms: int,
    ) -> Command:
        """The answer of the server, whatever its code. `ConnectionLostError`, `RequestTimeoutError`."""
        return await self.exchange(address, request(code, fields, body), timeout_ms)

    async def exchange(self, address: str, command: Request, timeout_ms: int) -> Command:
        """As `invoke`, for a request that was made elsewhere."""
        self.home.check()
        if self._credentials is not None:
            assert isinstance(command, Command)
            command = self._signed(command)
        channel = self._channels.get(address)
        left_ms = timeout_ms
        if channel is None or channel.closed or address in self._ungreeted:
            deadline_ms = monotonic_ms() + timeout_ms
            channel = await self._channel(address, timeout_ms)
            left_ms = self._left_ms(deadline_ms, address, command.code, timeout_ms)
        try:
            answer = await channel.call(command, left_ms)
        except RequestTimeoutError:
            if channel.closed:
                self._silent.setdefault(address, 0)
                self._away(address, f"it was silent for {left_ms} ms")
            self.on_unreachable(address)
            raise
        if _says_it_is_no_master(answer):
            self.on_unwilling(address)
        elif answer.code == ResponseCode.GO_AWAY:
            if self._channels.get(address) is channel:
                del self._channels[address]  # it finishes what it has; the server closes it
            channel = await self._channel(address, left_ms)
            answer = await channel.call(command, left_ms)
        return answer

    async def post(
        self,
        address: str,
        code: RequestCode,
        fields: dict[str, str] | None = None,
        body: Buffer = b"",
        *,
        timeout_ms: int,
    ) -> None:
        """Send a request that gets no answer; returns when it is written or buffered."""
        self.home.check()
        deadline_ms = monotonic_ms() + timeout_ms
        channel = await self._channel(address, timeout_ms)
        left_ms = self._left_ms(deadline_ms, address, code, timeout_ms)
        await channel.post(self._signed(request(code, fields, body, oneway=True)), left_ms)

    @property
    def signs(self) -> bool:
        """Whether requests are signed."""
        return self._credentials is not None

    def _signed(self, command: Command) -> Command:
        if self._credentials is not None:
            command.fields = self._credentials.signed(command.fields, command.body)
        return command

    def is_connected(self, address: str) -> bool:
        channel = self._channels.get(address)
        return channel is not None and not channel.closed

    async def connect(self, address: str, timeout_ms: int) -> None:
        """Make sure that there is a connection. `ConnectionLostError`; one that is being made goes on."""
        self.home.check()
        await self._channel(address, timeout_ms)

    def forget(self, address: str, reason: str) -> None:
        """Close the connection to a server that is in no route any more, unless a call waits for its answer."""
        channel = self._channels.get(address)
        if channel is not None and channel.in_flight_count == 0:
            del self._channels[address]
            channel.close(reason)

    async def ask(self, address: str, timeout_ms: int) -> None:
        """Any answer will do; without one, as in `exchange`."""
        command = self.question()
        if command is not None:
            await self.exchange(address, command, timeout_ms)

    def waited_for(self) -> Iterator[tuple[str, int]]:
        """Servers that owe an answer, each with its `Channel.received_count`."""
        for address, channel in self._channels.items():
            if channel.in_flight_count and not channel.closed:
                yield address, channel.received_count

    def are_silent(self, addresses: Container[str]) -> bool:
        """Whether one of these was silent when it was heard last. Others are forgotten."""
        self._silent = {address: count for address, count in self._silent.items() if address in addresses}
        return bool(self._silent)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Servers with an open connection."""
        return tuple(address for address, channel in self._channels.items() if not channel.closed)

    async def close(self) -> None:
        """Close all connections; calls that still wait fail, later ones are refused. Returns when the sockets are closed, after
        `CLIENT_GOODBYE_MS` at the latest."""
        self._closed = True
        await self._tasks.close()
        for channel in tuple(self._channels.values()):
            channel.close("the client was closed")
        if self._channels:
            await wait_event(self._emptied, CLIENT_GOODBYE_MS)

    async def _channel(self, address: str, timeout_ms: int) -> Channel:
        channel = self._channels.get(address)
        if channel is not None and not channel.closed and not self._owes_greeting(address):
            return channel
        if self._closed:
            raise client_is_closed(address)
        dialling = self._dialling.get(address)
        if dialling is None:
            dialling = self._dialling[address] = _Dialling()
            self._tasks.spawn(self._make(address, dialling), f"connecting to {address}")
        if not await wait_event(dialling.done, timeout_ms):
            raise no_connection(address, timeout_ms, TimeoutError())
        if dialling.channel is None:
            error = dialling.error or client_is_closed(address)
            raise ConnectionLostError(error.args[0], request_sent=False, remedy=error.remedy) from error
        return dialling.channel

    async def _make(self, address: str, dialling: _Dialling) -> None:
        channel = self._channels.get(address)
        is_new = channel is None or channel.closed
        try:
            if channel is None or is_new:
                channel = await self._dial(address, self._connect_timeout_ms, self._on_request, self._lost)
                if address in self._silent:
                    await self._hear(channel)
            await self._greet(channel)
            self._met.add(address)
            self.troubles.worked(address)
            self._channels[address] = dialling.channel = channel
        except ConnectionLostError as error:
            dialling.error = error
            self._away(address, error.args[0])
            self.on_unreachable(address)
        finally:
            del self._dialling[address]
            dialling.done.set()
        if dialling.channel is not None and is_new:
            self._on_connected(address)

    async def _hear(self, channel: Channel) -> None:
        """Rule 4. `ConnectionLostError` when nothing comes."""
        address = channel.address
        command = self.question()
        if command is not None:
            try:
                await channel.call(self._signed(command), CLIENT_QUESTION_AGAIN_TIMEOUT_MS)
            except RequestTimeoutError:
                self._silent[address] = self._silent.get(address, 0) + 1
                channel.close("the server is silent")
                raise still_silent(address) from None
            except BaseException:
                channel.close("the server was not heard")
                raise
        self._silent.pop(address, None)

    async def _greet(self, channel: Channel) -> None:
        """Without an answer in time the connection is used all the same: greetings are repeated."""
        command = self.greeting(channel.address)
        if command is None:
            self._ungreeted.add(channel.address)
        else:
            self._ungreeted.discard(channel.address)
            with contextlib.suppress(RequestTimeoutError):
                await channel.call(self._signed(command), CLIENT_GREETING_TIMEOUT_MS)

    def _owes_greeting(self, address: str) -> bool:
        return address in self._ungreeted and self.greeting(address) is not None

    def _away(self, address: str, reason: str) -> None:
        if not self._closed:
            quiet_ms = 0 if address in self._met and self.is_missed(address) else CLIENT_TROUBLE_QUIET_MS
            self.troubles.note(address, AWAY, self.name_of(address), reason, quiet_ms=quiet_ms)

    def _lost(self, channel: Channel) -> None:
        if self._channels.get(channel.address) is channel:
            del self._channels[channel.address]
            if channel.in_flight_count:
                self._away(channel.address, f"the connection was {channel.ending}")
        if self._closed and not self._channels:
            self._emptied.set()

    @staticmethod
    def _left_ms(deadline_ms: int, address: str, code: int, timeout_ms: int) -> int:
        left_ms = deadline_ms - monotonic_ms()
        if left_ms <= 0:
            raise RequestTimeoutError(
                f"connecting to {address} took all of the {timeout_ms} ms of request {code}; nothing was sent"
            )
        return left_ms


def client_is_closed(address: str) -> ConnectionLostError:
    return ConnectionLostError(
        f"no connection to {address}: the client is closed", request_sent=False, remedy="use it inside its with block"
    )


def _says_it_is_no_master(answer: Command) -> bool:
    if answer.code == ResponseCode.SYSTEM_BUSY:
        return (answer.remark or "").startswith(NO_APPEND)
    return answer.code == ResponseCode.SERVICE_NOT_AVAILABLE or answer.remark == NOT_READ


def still_silent(address: str) -> ConnectionLostError:
    return ConnectionLostError(
        f"no connection to {address}: it takes connections and answers nothing", request_sent=False
    )
