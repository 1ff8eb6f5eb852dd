"""The embedded broker for tests without an event loop.

    with EmbeddedBroker.sync() as broker, broker.connect() as mq:
        mq.send("orders", b"unpaid", delay_level=16)
        broker.advance(timedelta(minutes=30))
        [message] = broker.messages("orders")

Rules of this file
1. Every method is that of `EmbeddedBroker`, run on the broker's own thread; what it promises stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from types import TracebackType

from orbitmq.client import Client as AsyncClient
from orbitmq.client import ClientOptions, ProducerOptions, StoredMessage
from orbitmq.errors import OrbitError
from orbitmq.protocol.names import dlq_topic
from orbitmq.sync import Client
from orbitmq.testing.clock import NO_TIME, YEAR, as_ms, whole_ms
from orbitmq.testing.contents import PendingMessage
from orbitmq.testing.server import InProcess
from orbitmq.testing.thread import ServerThread


class SyncEmbeddedBroker(InProcess):
    """What `EmbeddedBroker` is, on a thread of its own, with blocking calls. Made by `EmbeddedBroker.sync`."""

    _running: ServerThread | None = None

    def __enter__(self) -> SyncEmbeddedBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start serving; what `with` does first."""
        thread = self._running = ServerThread()
        try:
            thread.call(self._server.open())
        except BaseException:
            self._running = None
            thread.stop()
            raise

    def close(self) -> None:
        """Stop in order."""
        thread, self._running = self._thread, None
        try:
            thread.call(self._server.close())
        finally:
            thread.stop()

    @property
    def _thread(self) -> ServerThread:
        if self._running is None:
            raise OrbitError("the embedded broker is not running", remedy="use it inside its with block")
        return self._running

    def connect(
        self, *, options: ClientOptions | None = None, producer_options: ProducerOptions | None = None
    ) -> Client:
        """A synchronous client of this broker that goes by its clock."""
        return Client(AsyncClient(self.address, options=options, producer_options=producer_options, clock=self._clock))

    def advance(self, by: timedelta, *, groups: Collection[str] = ()) -> None:
        """See `EmbeddedBroker.advance`."""
        self._thread.call(self._server.advance_to(self._clock.now_ms() + whole_ms(by), groups))

    def advance_to(self, at: datetime, *, groups: Collection[str] = ()) -> None:
        """See `EmbeddedBroker.advance_to`."""
        self._thread.call(self._server.advance_to(as_ms(at), groups))

    def run_until(
        self, condition: Callable[[], bool], *, within: timedelta = YEAR, groups: Collection[str] = ()
    ) -> None:
        """See `EmbeddedBroker.run_until`; the condition is asked on this thread."""
        server, thread = self._server, self._thread
        end_ms, patience = self._clock.now_ms() + whole_ms(within), server.patience()
        thread.call(server.settle(groups))
        while not condition():
            thread.call(server.look_on(end_ms, groups, patience))

    def consumed(self, *groups: str) -> None:
        """See `EmbeddedBroker.consumed`."""
        self._thread.call(self._server.settle(groups))

    def messages(self, topic: str) -> list[StoredMessage]:
        """See `EmbeddedBroker.messages`."""
        return self._thread.do(lambda: self._server.messages(topic))

    def dead_letters(self, group: str) -> list[StoredMessage]:
        """See `EmbeddedBroker.dead_letters`."""
        return self.messages(dlq_topic(group))

    def pending(self, topic: str | None = None) -> list[PendingMessage]:
        """See `EmbeddedBroker.pending`."""
        return self._thread.do(lambda: self._server.pending(topic))

    def restart(self, *, down: timedelta = NO_TIME) -> None:
        """See `EmbeddedBroker.restart`."""
        self._thread.call(self._server.restart(whole_ms(down)))

    def crash(self, *, down: timedelta = NO_TIME) -> None:
        """See `EmbeddedBroker.crash`."""
        self._thread.call(self._server.crash(whole_ms(down)))
