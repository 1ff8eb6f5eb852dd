"""The way of encoded rows to the brokers: a bounded number of requests under way, repeated until answered.

A request is tried once over a connection of the task itself (`first_attempts.py`). What comes to nothing there goes to the client, which
repeats it with patience. While it has something to repeat all further requests go to it too: its failure ends the task.

Rules of this file
1. One client for each cluster and process, on a thread of its own; tasks of the same worker share it.
2. A request is repeated with the same bytes to the same broker, so that the broker recognises it. Pauses grow, and the whole has a
   limit; then the error names the broker, its address and the topic.
3. Rows that keep an order within their queue have one request under way at a time for that queue, by the client; all others overtake
   freely.
4. The first error ends the task; what is under way then is not waited for.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from orbitmq.client._async.client import Client
from orbitmq.client._async.runtime import monotonic_ms, sleep_ms
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client.answers import remote_error
from orbitmq.client.bulk.wave_connection import WaveConnection
from orbitmq.client.connect_settings import ConnectSettings
from orbitmq.client.sending.outgoing import STORED_CODES, WAITING, Outgoing, request_fields
from orbitmq.client.sending.send_attempts import may_have_stored, may_help_elsewhere
from orbitmq.errors import (
    ClientError,
    ConnectionLostError,
    ProtocolError,
    RemoteError,
    SendFailedError,
    StaleEpochError,
)
from orbitmq.limits.spark import (
    SPARK_BACK_OFF_MS_MAX,
    SPARK_IN_FLIGHT_BYTES,
    SPARK_IN_FLIGHT_MAX,
    SPARK_SEND_BACK_OFF_MS,
)
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.remoting.idempotence_bodies import FinishEpoch, ScopeList, ScopeQuery, ScopeView
from orbitmq.spark.connect_options import connect_parts
from orbitmq.spark.writing.first_attempts import FirstAttempts
from orbitmq.spark.writing_options import WriteOptions

T = TypeVar("T")

log = logging.getLogger("orbitmq.spark")

TOPIC_QUEUES: Final = 4
"""Queues asked for when a broker creates the topic."""

_OF_BATCHES: Final = f"{WAITING}{Property.OWN_TIMES}\x01true\x02"
"""Properties of a batch: its rows may fall due at different times."""


class Frame(NamedTuple):
    """One request. `properties` are those of a single message; without them it is a batch. first, row_count: its rows, for errors."""

    topic: str
    broker: str
    queue_id: int
    body: bytes | memoryview
    first: int
    row_count: int
    sys_flag: int = 0
    properties: str | None = None
    flag: int = 0
    is_timed: bool = False
    is_ordered: bool = False


class WritableTopic(NamedTuple):
    """What the brokers of a topic say. queue_counts: writable queues by broker. scopes: None when one of them knows no idempotent
    sends."""

    queue_counts: dict[str, int]
    scopes: list[ScopeView] | None


class RowSink(Protocol):
    """The part of `WriterClient` and `TaskSending` that a task uses; tests may bring their own."""

    def known(self, topic: str, prefix: str) -> WritableTopic: ...

    def send(self, frames: Sequence[Frame]) -> None: ...

    def finish(self) -> frozenset[tuple[str, str]]: ...

    def end_epoch(self, topic: str, broker: str, end: FinishEpoch, *, needed: bool) -> None: ...


def _loop_maker() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed: it takes a quarter off the cost of a row."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _may_pass(error: ClientError) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, RemoteError) and error.code in STORED_CODES:
        return True  # stored, but not yet as safe as the broker wants it: its repeat waits for that
    return may_help_elsewhere(error)


class WriterClient:
    """A client and the thread it lives on."""

    def __init__(self, name_servers: tuple[str, ...], connect: ConnectSettings) -> None:
        self._thread = LoopThread("spark writer", _loop_maker())
        self._client = Client(name_servers, options=connect_parts(connect).client_options)
        self._thread.open(self._client.start())

    def unique_ids(self, count: int) -> tuple[str, int]:
        """`UniqueIds.several` of the client."""
        return self._client.unique_ids.several(count)

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """What `work` returns, done with the client and on its thread."""
        return self._thread.run(work(self._client))

    def sending(self, options: WriteOptions, place: str, *, may_be_over: bool) -> TaskSending:
        return TaskSending(self._thread, self._client, options, place, may_be_over=may_be_over)

    def close(self) -> None:
        self._thread.close(self._client.close())


_clusters: dict[tuple[int, tuple[str, ...], ConnectSettings], WriterClient] = {}


def cluster(name_servers: tuple[str, ...], connect: ConnectSettings) -> WriterClient:
    """The process's connection to a cluster; made at the first call. A forked child makes its own."""
    key = os.getpid(), name_servers, connect
    found = _clusters.get(key)
    if found is None:
        found = _clusters[key] = WriterClient(name_servers, connect)
    return found


class TaskSending:
    """The requests of one task. Made by `WriterClient.sending`; blocking calls from one thread."""

    def __init__(
        self, thread: LoopThread, client: Client, options: WriteOptions, place: str, *, may_be_over: bool
    ) -> None:
        """may_be_over: a refusal because the epoch is over says that an earlier attempt ended; it is noted and is no error."""
        self._thread = thread
        self._client = client
        self._options = options
        self._place = place
        self._may_be_over = may_be_over
        self._tasks: set[asyncio.Task[None]] = set()
        self._bytes = 0
        self._last_in_queue: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._over: set[tuple[str, str]] = set()
        self._error: BaseException | None = None
        parts = connect_parts(options.connect)
        self._first: FirstAttempts[Frame] = FirstAttempts(
            lambda address: WaveConnection(address, options.send_timeout_ms, *parts),
            self._is_stored,
        )
        self._addresses: dict[tuple[str, str], str] = {}
        self._timed_addresses: set[str] = set()
        """Brokers that know what to do with a due time."""

    # --- for the task -----------------------------------------------------------------------------------------------

    def known(self, topic: str, prefix: str) -> WritableTopic:
        """Brokers and queues of a topic, and what they remember of scopes that begin so; an empty prefix is not asked for."""
        return self._thread.run(self._patiently(topic, lambda: self._known(topic, prefix)))

    def send(self, frames: Sequence[Frame]) -> None:
        """Begin requests; returns when there is room for more. Raises what an earlier one failed with."""
        if self._tasks and frames and not frames[0].is_ordered:
            self._thread.run(self._settled())
        for number, frame in enumerate(frames):
            if self._tasks or frame.is_ordered:
                self._thread.run(self._begin(frames[number:]))
                return
            if (frame.topic, frame.broker) in self._over:
                continue
            self._repeat(self._try_once(frame))
            while (
                self._first.under_way_bytes > SPARK_IN_FLIGHT_BYTES
                or self._first.under_way_count >= SPARK_IN_FLIGHT_MAX
            ):
                self._repeat(self._first.wait())

    def finish(self) -> frozenset[tuple[str, str]]:
        """Wait for all answers. Topics and brokers for which an earlier attempt had ended before."""
        while self._first.under_way_count:
            self._repeat(self._first.wait())
        self._thread.run(self._wait(0, 0))
        return frozenset(self._over)

    def close(self) -> None:
        """End the connections of this task; what is unanswered is given up."""
        self._first.close()

    def end_epoch(self, topic: str, broker: str, end: FinishEpoch, *, needed: bool) -> None:
        """Tell a broker that an epoch is finished. Unless it is `needed`, a broker that cannot be told is left alone."""
        try:
            self._thread.run(self._patiently(topic, lambda: self._end_epoch(topic, broker, end)))
        except StaleEpochError:
            raise
        except ClientError as error:
            if needed:
                raise
            log.warning("broker %s keeps the keys of scope %s until they are old: %s", broker, end.scope, error)

    def ask(self, topic: str, broker: str, code: RequestCode, body: bytes, doing: str) -> bytes:
        """The body of a broker's answer to a request that may be repeated."""
        return self._thread.run(self._patiently(topic, lambda: self._ask(topic, broker, code, body, doing)))

    # --- first attempts ---------------------------------------------------------------------------------------------

    def _try_once(self, frame: Frame) -> list[Frame]:
        """Begin a first attempt. What is to be repeated: this one, or earlier ones."""
        place = frame.topic, frame.broker
        try:
            address = self._addresses.get(place)
            if address is None or not self._first.is_connected(address):
                address = self._addresses[place] = self._thread.do(self._address, frame.topic, frame.broker)
                self._timed_addresses.discard(address)
            if frame.is_timed and address not in self._timed_addresses:
                self._thread.run(self._check_timed(address, frame))
                self._timed_addresses.add(address)
        except ClientError as error:
            log.info("a request to broker %s goes the slow way: %s", frame.broker, error)
            return [frame]
        return self._first.begin(address, frame, self._command(frame))

    def _repeat(self, frames: list[Frame]) -> None:
        if frames:
            self._thread.run(self._begin(frames))

    def _is_stored(self, code: int) -> bool:
        """With dedup a message that is not yet as safe as the broker wants it is repeated, which waits for that."""
        return code == ResponseCode.SUCCESS or (code in STORED_CODES and not self._options.dedup)

    def _command(self, frame: Frame) -> Command:
        fields = request_fields(
            _outgoing(frame),
            MessageQueue(frame.topic, frame.broker, frame.queue_id),
            self._options.producer_group,
            TOPIC_QUEUES,
            self._client.clock.now_ms(),
        )
        code = RequestCode.SEND_BATCH_MESSAGE if frame.properties is None else RequestCode.SEND_MESSAGE_V2
        return request(code, fields, frame.body)

    # --- on the loop ------------------------------------------------------------------------------------------------

    async def _check_timed(self, address: str, frame: Frame) -> None:
        await self._client.check_timed(address, frame.broker, _outgoing(frame), self._options.send_timeout_ms)

    async def _settled(self) -> None:
        """Forget what has ended; raises the first error."""
        has_ended = any(task.done() for task in self._tasks)
        await self._wait(self._bytes, len(self._tasks) - has_ended)

    async def _known(self, topic: str, prefix: str) -> WritableTopic:
        client = self._client
        route = await client.routes.refresh(topic) or await client.routes.for_sending(topic, TOPIC_QUEUES)
        if not route.publish_queues:
            route = await client.routes.for_sending(topic, TOPIC_QUEUES)  # says why
        counts = Counter(queue.broker_name for queue in route.publish_queues)
        if not prefix:
            return WritableTopic(dict(counts), [])
        found: list[ScopeView] = []
        for broker in sorted(counts):
            address = self._address(topic, broker)
            answer = await client.network.invoke(
                address,
                RequestCode.FIND_SCOPES,
                {"topic": topic},
                ScopeQuery(prefix=prefix).encode(),
                timeout_ms=self._options.send_timeout_ms,
            )
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return WritableTopic(dict(counts), None)
            if answer.code != ResponseCode.SUCCESS:
                raise remote_error(answer.code, answer.remark, address, f"asking for scopes that begin with {prefix!r}")
            found += ScopeList.decode(answer.body).scopes
        return WritableTopic(dict(counts), found)

    async def _end_epoch(self, topic: str, broker: str, end: FinishEpoch) -> None:
        await self._client.network.request(
            self._address(topic, broker),
            RequestCode.FINISH_EPOCH,
            {"topic": topic},
            end.encode(),
            timeout_ms=self._options.send_timeout_ms,
            doing=f"finishing epoch {end.epoch} of scope {end.scope!r}",
        )

    async def _ask(self, topic: str, broker: str, code: RequestCode, body: bytes, doing: str) -> bytes:
        address, timeout_ms = self._address(topic, broker), self._options.send_timeout_ms
        answer = await self._client.network.request(address, code, {}, body, timeout_ms=timeout_ms, doing=doing)
        return bytes(answer.body)

    async def _begin(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            await self._wait(SPARK_IN_FLIGHT_BYTES, SPARK_IN_FLIGHT_MAX - 1)
            if (frame.topic, frame.broker) in self._over:
                continue
            place = frame.topic, frame.broker, frame.queue_id
            before = self._last_in_queue.get(place) if frame.is_ordered else None
            self._bytes += len(frame.body)
            task = asyncio.ensure_future(self._deliver(frame, before))
            self._tasks.add(task)
            if frame.is_ordered:
                self._last_in_queue[place] = task

    async def _wait(self, room_bytes: int, room_count: int) -> None:
        """Until no more than that is under way. Raises the first error, and gives up what is under way then."""
        while self._tasks and self._error is None and (self._bytes > room_bytes or len(self._tasks) > room_count):
            done, self._tasks = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if self._error is None and not task.cancelled():
                    self._error = task.exception()
        if self._error is not None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks.clear()
            raise self._error

    async def _deliver(self, frame: Frame, before: asyncio.Task[None] | None) -> None:
        try:
            if before is not None:
                await before
            await self._patiently(frame.topic, lambda: self._attempt(frame))
        except StaleEpochError:
            if not self._may_be_over:
                raise
            self._over.add((frame.topic, frame.broker))
        finally:
            self._bytes -= len(frame.body)

    async def _attempt(self, frame: Frame) -> None:
        address = self._address(frame.topic, frame.broker)
        if frame.is_timed:
            await self._check_timed(address, frame)
        answer = await self._client.network.exchange(address, self._command(frame), self._options.send_timeout_ms)
        if self._is_stored(answer.code):
            return
        rows = f"row {frame.first}" if frame.row_count == 1 else f"rows {frame.first} and following"
        raise remote_error(
            answer.code, answer.remark, address, f"sending {rows} of {self._place} to topic {frame.topic!r}"
        )

    async def _patiently(self, topic: str, work: Callable[[], Awaitable[T]]) -> T:
        """`work` again until it succeeds, fails for good, or the time is over."""
        began_ms, pause_ms, attempts, unsure = monotonic_ms(), SPARK_SEND_BACK_OFF_MS, 0, False
        while True:
            try:
                return await work()
            except ClientError as error:
                attempts += 1
                unsure = unsure or may_have_stored(error)
                if not _may_pass(error):
                    raise
                took_ms = monotonic_ms() - began_ms
                if took_ms + pause_ms > self._options.retry_timeout_ms:
                    raise SendFailedError(
                        f"writing {self._place} to topic {topic!r} failed, {attempts} attempts in {took_ms} ms: {error}",
                        maybe_stored=unsure,
                        remedy="look at that broker, or raise retryTimeoutMs; the task may be repeated",
                    ) from error
            await sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, SPARK_BACK_OFF_MS_MAX)
            try:
                await self._client.routes.refresh(topic)  # it may have come back at another address
            except (ClientError, ProtocolError) as error:
                log.debug("the route of %s was not refreshed: %s", topic, error)

    def _address(self, topic: str, broker: str) -> str:
        address = self._client.routes.master(broker, topic)
        if address is None:
            raise ConnectionLostError(
                f"broker {broker} of topic {topic!r} has no master address",
                request_sent=False,
                remedy="it is in no route: start it again; rows that may be stored there cannot go elsewhere",
            )
        return address


def _outgoing(frame: Frame) -> Outgoing:
    return Outgoing(
        frame.topic,
        frame.body,  # type: ignore[arg-type]  # it is only handed on
        _OF_BATCHES if frame.properties is None else frame.properties,
        (),
        frame.sys_flag,
        frame.flag,
        frame.properties is None,
        is_timed=frame.is_timed,
    )
