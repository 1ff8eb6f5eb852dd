"""Sessions: the clients of RocketMQ 5, each over any number of connections.

A client is known by the id that all its calls carry. Its session begins with its first settings (`telemetry`), is the member of groups that
everybody else sees (`ClientSession`), and ends when the client says so, or is silent for as long as a member of a group may be.

Rules of this file
1. A client id belongs to a user: two users with the same id have two sessions, and neither reaches the other's.
2. The stream that brought the latest settings is the way to the client. When it ends the session goes on without one.
3. Sessions are bounded in number, and what they keep of settings in bytes. Who finds no room is refused, and nobody else notices.
4. What others keep for a session ends with it: they hear of its end (`ended`).

Source: RocketMQ gRPC, telemetry; heartbeat, termination, liveness.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from orbitmq.broker.clients import HeartbeatSender
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.messaging.asking_clients import ClientQuestions
from orbitmq.limits.broker import CLIENT_ID_CHARS_MAX
from orbitmq.limits.grpc import CLIENT_VERSION_CHARS_MAX, SESSIONS_MAX, SESSIONS_SETTINGS_BYTES_MAX, SETTINGS_PART_BYTES
from orbitmq.protocol.grpc.merged_settings import part_count
from orbitmq.protocol.grpc.messages import Code, Settings, TelemetryCommand
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.grpc.status import RpcError
from orbitmq.protocol.remoting.bodies import ConsumerData, SubscriptionGroupConfig
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.versions import OUR_VERSION
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.broker")

SILENT: Final = "silent clients of gRPC"
"""Name of the wake-up that ends sessions whose client has said nothing for too long."""


class Session:
    """One client. A `ClientSession` of the registry.

    settings: what the client said last, as it came. topics: what a producer has said that it sends to.
    consumer: the group that it is a consumer of; None for a producer.
    told_group: the configuration of the group in the settings that it was sent last.
    stream: its `Telemetry` call; None while it has none.
    """

    __slots__ = (
        "_sessions",
        "address",
        "client_id",
        "consumer",
        "is_open",
        "language",
        "seen_ns",
        "settings",
        "settings_bytes",
        "stream",
        "told_group",
        "topics",
        "user",
        "version",
    )

    def __init__(self, sessions: Sessions, call: OpenCall) -> None:
        self._sessions = sessions
        self.client_id: Final = call.call.client_id
        self.user: Final = call.user
        self.language = call.call.language
        self.version = call.call.client_version[:CLIENT_VERSION_CHARS_MAX]
        self.address: tuple[str, int] = call.address
        self.settings = Settings()
        self.settings_bytes = 0
        self.topics: tuple[str, ...] = ()
        self.consumer: ConsumerData | None = None
        self.told_group: SubscriptionGroupConfig | None = None
        self.stream: OpenCall | None = None
        self.seen_ns = 0
        self.is_open = True

    def __repr__(self) -> str:
        return f"client {self.client_id[:80]!r} of {self.address[0]}:{self.address[1]}"

    @property
    def group(self) -> str:
        """The consumer group; empty for a producer."""
        return "" if self.consumer is None else self.consumer.group_name

    def tell(self, command: TelemetryCommand) -> bool:
        """Send something on the stream; False where there is none that takes it now."""
        stream = self.stream
        if stream is None or not self.writable:
            return False
        stream.answer(command.SerializeToString())
        return True

    # --- ClientSession --------------------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        return self.stream is not None and self.stream.is_wanted and self.stream.writable

    def send(self, command: Command) -> None:
        self._sessions.questions.tell(self, command)

    def request(self, command: Command, timeout_ms: int, callback: Callable[[Command | None], None]) -> None:
        self._sessions.questions.ask(self, command, timeout_ms, callback)

    def close(self, reason: str) -> None:
        self._sessions.end(self, reason)


class Sessions:
    """All sessions of a broker."""

    def __init__(self, core: BrokerCore, *, sessions_max: int = SESSIONS_MAX) -> None:
        self._clients = core.clients
        self._clock = core.clock
        self._deadlines = core.deadlines
        self._expiry_ms = core.settings.channel_expired_timeout_ms
        self._sessions_max = sessions_max
        self._sessions: dict[tuple[str, str], Session] = {}
        """By user and client id; the one that has been silent for longest comes first."""
        self._settings_bytes = 0
        self.questions: Final = ClientQuestions(core)
        self.ended: Final[list[Callable[[Session], None]]] = []
        """Hear of the end of each session, once."""
        core.deadlines.define(SILENT, self._end_silent)

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, call: OpenCall) -> Session | None:
        """The session of whoever calls; None before its first settings."""
        return self._sessions.get((call.user, call.call.client_id))

    def begin(self, call: OpenCall) -> Session:
        """The session of whoever calls, which is made if there is none. Raises RpcError where there is no room for another."""
        session = self.of(call)
        if session is not None:
            return session
        if len(call.call.client_id) > CLIENT_ID_CHARS_MAX:
            raise RpcError(Code.BAD_REQUEST, f"x-mq-client-id has more than {CLIENT_ID_CHARS_MAX} characters")
        if len(self._sessions) >= self._sessions_max:
            raise RpcError(
                Code.TOO_MANY_REQUESTS, f"{len(self._sessions)} clients are connected, the most this broker takes"
            )
        session = Session(self, call)
        self._sessions[call.user, session.client_id] = session
        return session

    def keep_settings(self, session: Session, settings: Settings) -> None:
        """What the client says of itself now. Raises RpcError beyond the bound of all sessions together."""
        size = settings.ByteSize() + SETTINGS_PART_BYTES * part_count(settings)
        total = self._settings_bytes + size - session.settings_bytes
        if total > SESSIONS_SETTINGS_BYTES_MAX:
            raise RpcError(
                Code.TOO_MANY_REQUESTS,
                f"settings of {size} bytes do not fit: those of all clients take {self._settings_bytes} of "
                f"{SESSIONS_SETTINGS_BYTES_MAX} bytes",
            )
        self._settings_bytes = total
        session.settings, session.settings_bytes = settings, size
        session.topics = tuple(dict.fromkeys(topic.name for topic in settings.publishing.topics))

    def seen(self, session: Session, call: OpenCall) -> HeartbeatSender:
        """The client has said that it is there; how the registry is told."""
        session.address = call.address
        session.seen_ns = self._clock.monotonic_ns()
        key = session.user, session.client_id
        self._sessions[key] = self._sessions.pop(key)
        self._deadlines.arm(
            SILENT, session.seen_ns + self._expiry_ms * NS_PER_MS
        )  # an earlier one stays, and looks again
        return HeartbeatSender(
            session,
            session.client_id,
            session.language,
            OUR_VERSION,
            self._clock.now_ms(),
            session.seen_ns,
            session.user,
            protocol="grpc",
        )

    def end(self, session: Session, reason: str) -> None:
        """The client is gone. Calling again does nothing."""
        if not session.is_open:
            return
        session.is_open = False
        session.stream = None
        del self._sessions[session.user, session.client_id]
        self._settings_bytes -= session.settings_bytes
        logger.info("%r ended: %s", session, reason)
        self._clients.session_ended(session)
        self.questions.session_ended(session)
        for ended in self.ended:
            ended(session)
        self._arm()

    def end_all(self, reason: str) -> None:
        for session in list(self._sessions.values()):
            self.end(session, reason)

    # --- silence ------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        first = next(iter(self._sessions.values()), None)
        self._deadlines.move(SILENT, None if first is None else first.seen_ns + self._expiry_ms * NS_PER_MS)

    def _end_silent(self) -> None:
        oldest_ns = self._clock.monotonic_ns() - self._expiry_ms * NS_PER_MS
        silent = []
        for session in self._sessions.values():
            if session.seen_ns > oldest_ns:
                break
            silent.append(session)
        for session in silent:
            self.end(session, f"nothing was heard of it for {self._expiry_ms} ms")
        self._arm()
