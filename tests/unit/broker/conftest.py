"""A broker over a real store in a temporary directory, with a clock that is moved by hand and peers made of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orbitmq.broker.broker import make_broker
from orbitmq.broker.core import Facilities
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.idempotence.memory import KeyBounds
from orbitmq.broker.settings import BrokerSettings
from orbitmq.clock import ManualClock
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.records import Record, iter_records
from orbitmq.protocol.remoting.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from orbitmq.protocol.remoting.commands import SEND_V1_FIELDS, RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, decode, request, response
from orbitmq.protocol.remoting.versions import OUR_VERSION
from orbitmq.server.configuration.runtime_settings import RuntimeSettings
from orbitmq.server.configuration.settings import ServerSettings
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import OsFiles
from orbitmq.store.opening import open_store
from orbitmq.store.settings import StoreSettings
from orbitmq.store.worker import InlineWorker
from orbitmq.timing.appending import Appenders

NOW_MS = 1_700_000_000_000
STORE_HOST = pack_host("10.0.0.1", 10_911)


class Question(NamedTuple):
    """A request of the broker to a client, with what it does with the answer."""

    command: Command
    timeout_ms: int
    answer: Callable[[Command | None], None]


class ListPeer:
    """A connection that keeps what it was sent."""

    def __init__(self, clock: ManualClock, port: int = 40_000) -> None:
        self._clock = clock
        self.address = ("10.0.0.9", port)
        self.host = pack_host(*self.address)
        self.attachments: dict[str, object] = {}
        self.sent: list[Command] = []
        self.closed: str | None = None
        self.writable = True
        self.pauses = 0
        self.questions: list[Question] = []
        """Requests of the broker to this client, each until it is answered."""
        self.waited_ms = 0
        """How long ago the bytes of the next request were read."""

    @property
    def connection(self) -> ListPeer:
        return self

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def send_answer(self, frame: bytes) -> None:
        self.sent.append(decode(frame))

    def when_writable(self, call: Callable[[], None]) -> None:
        raise AssertionError("this connection always is")

    def send_parts(self, command: Command, parts: Sequence[Any]) -> None:
        command.body = b"".join(bytes(part) for part in parts)
        self.sent.append(command)

    def request(self, command: Command, timeout_ms: int, callback: Callable[[Command | None], None]) -> None:
        self.questions.append(Question(command, timeout_ms, callback))

    @property
    def received_ns(self) -> int:
        return self._clock.monotonic_ns() - self.waited_ms * 1_000_000

    def close(self, reason: str) -> None:
        self.closed = reason

    def pause_requests(self) -> None:
        self.pauses += 1

    def resume_requests(self) -> None:
        self.pauses -= 1

    def take(self) -> list[Command]:
        sent, self.sent = self.sent, []
        return sent


class Rig:
    """One broker and what it takes to talk to it. Every call is one loop turn."""

    gate: Any = None
    """What the broker asks before it handles a request."""

    def __init__(self, root: Path, settings: BrokerSettings, store_settings: StoreSettings) -> None:
        self.root = root
        self.clock = ManualClock(NOW_MS)
        self.settings = settings
        self.store_settings = store_settings
        self._opaque = 0
        self._port = 40_000
        self.chosen_queue = 0
        self.client_version = OUR_VERSION
        self.once_bounds = KeyBounds()
        self.open()

    def open(self) -> None:
        files = OsFiles()
        self.idempotence = Idempotence(files, self.root, self.clock, self.once_bounds)
        self.store = open_store(
            self.root,
            self.store_settings,
            files,
            self.clock,
            notify=lambda call: call(),
            derived=[self.idempotence, *self.more_derived()],
            worker=InlineWorker(),
        )
        runtime = RuntimeSettings(ServerSettings(data=self.root))
        facilities = Facilities(
            tables=lambda name: ConfigFile(files, self.root / "config" / name),
            store_host=STORE_HOST,
            configuration=runtime.shown,
            change_configuration=runtime.update,
            memory_bytes=1 << 30,
            random_below=lambda bound: self.chosen_queue % bound,
            gate=self.gate,
        )
        derived = DerivedState(idempotence=self.idempotence, **self.more_parts())
        self.broker = make_broker(self.settings, self.store, self.clock, facilities, derived)
        parts = [
            part for part in self.broker.rooms.appenders if hasattr(part, "attach")
        ]  # what stands in appends nothing
        self.appenders = Appenders(self.store, self.clock, parts)
        self.appenders.attach()

    def more_derived(self) -> list[Any]:
        """What else the store derives; for rigs that serve more."""
        return []

    def more_parts(self) -> dict[str, Any]:
        """The same by the names of `DerivedState`."""
        return {}

    def close(self) -> None:
        self.broker.close()
        self.store.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def peer(self) -> ListPeer:
        self._port += 1
        return ListPeer(self.clock, self._port)

    def answering_peer(self, answer: Command) -> ListPeer:
        """A client that answers whatever it is asked with the code, remark and body of `answer`."""
        peer = self.peer()

        def ask(command: Command, timeout_ms: int, callback: Callable[[Command | None], None]) -> None:
            callback(response(command, answer.code, answer.remark, None, bytes(answer.body)))

        peer.request = ask  # type: ignore[method-assign]
        return peer

    # --- calling ------------------------------------------------------------------------------------------------------

    def give(self, command: Command, peer: ListPeer) -> Command | None:
        """Hand over a request without ending the turn."""
        self._opaque += 1
        command.opaque = self._opaque
        return self.broker.handle(command, peer)

    def call(
        self,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes = b"",
        *,
        peer: ListPeer | None = None,
        oneway: bool = False,
    ) -> Command:
        """One request in a turn of its own; its answer. Fails when there is none."""
        answer = self.try_call(code, fields, body, peer=peer, oneway=oneway)
        assert answer is not None, "no answer"
        return answer

    def try_call(
        self,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes = b"",
        *,
        peer: ListPeer | None = None,
        oneway: bool = False,
    ) -> Command | None:
        peer = peer or self.peer()
        texts = None if fields is None else {name: _text(value) for name, value in fields.items()}
        command = request(code, texts, body, oneway=oneway, version=self.client_version)
        answer = self.give(command, peer)
        self.broker.end_turn()
        if answer is not None:
            return answer
        for index, sent in enumerate(peer.sent):
            if sent.is_response and sent.opaque == command.opaque:
                return peer.sent.pop(index)
        return None

    # --- common requests ----------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        body: bytes = b"hello",
        properties: dict[str, str] | None = None,
        *,
        queue_id: int = 0,
        peer: ListPeer | None = None,
        oneway: bool = False,
        code: int = RequestCode.SEND_MESSAGE_V2,
        text: str | None = None,
        **more: Any,
    ) -> Command | None:
        fields: dict[str, Any] = {
            "producerGroup": "pg",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": queue_id,
            "sysFlag": 0,
            "bornTimestamp": NOW_MS - 5,
            "flag": 0,
            "properties": encode_properties(properties or {}).decode() if text is None else text,
            "reconsumeTimes": 0,
            "unitMode": False,
            "batch": False,
            **more,
        }
        if code != RequestCode.SEND_MESSAGE:
            fields = {SEND_V1_FIELDS[name]: value for name, value in fields.items()}
        return self.try_call(code, fields, body, peer=peer, oneway=oneway)

    def sent_ok(
        self, topic: str, body: bytes = b"hello", properties: dict[str, str] | None = None, **more: Any
    ) -> Command:
        answer = self.send(topic, body, properties, **more)
        assert answer is not None
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        return answer

    def pull(
        self,
        topic: str,
        offset: int = 0,
        *,
        group: str = "g",
        queue_id: int = 0,
        peer: ListPeer | None = None,
        **more: Any,
    ) -> Command | None:
        """A pull with its own subscription to everything; None while it is held."""
        fields: dict[str, Any] = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 15_000,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
            **more,
        }
        return self.try_call(
            RequestCode.PULL_MESSAGE, {name: value for name, value in fields.items() if value is not None}, peer=peer
        )

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        """Everything in one queue."""
        end = self.store.max_offset(topic, queue_id)
        result = self.store.get(topic, queue_id, self.store.min_offset(topic, queue_id), max(end, 1), 1 << 30)
        return [record for part in result.records for record in iter_records(bytes(part))]

    def heartbeat(
        self, peer: ListPeer, client_id: str, group: str | None = None, topics: Sequence[str] = (), *,
        producer: str | None = None, sub_string: str = "*", sub_version: int = 1, fingerprint: int = 0,
        without_sub: bool = False, kind: str = "TAG", **consumer: Any,
    ) -> Command:  # fmt: skip
        consumers = []
        if group is not None:
            subscriptions = [
                SubscriptionData(topic=topic, sub_string=sub_string, sub_version=sub_version, expression_type=kind)
                for topic in topics
            ]
            consumers = [ConsumerData(group_name=group, subscription_data_set=subscriptions, **consumer)]
        body = HeartbeatData(
            client_id=client_id,
            consumer_data_set=consumers,
            producer_data_set=[ProducerData(group_name=producer)] if producer else [],
            heartbeat_fingerprint=fingerprint,
            without_sub=without_sub,
        )
        return self.call(RequestCode.HEART_BEAT, None, body.encode(), peer=peer)

    def advance(self, ms: int) -> None:
        """Let time pass, doing periodic work exactly when it is due."""
        end = self.clock.monotonic_ns() + ms * 1_000_000
        while (due := self.broker.next_tick_ns) is not None and due <= end:
            self.clock.advance(max(0, -(-(due - self.clock.monotonic_ns()) // 1_000_000)))
            self.broker.tick()
            self.broker.end_turn()
        self.clock.advance((end - self.clock.monotonic_ns()) // 1_000_000)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


SMALL_STORE = StoreSettings(
    mapped_file_size_commit_log=1 << 24,
    mapped_file_size_consume_queue=20_000,
    max_hash_slot_num=1_000,
    max_index_num=4_000,
)

MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[MakeRig]:
    """Builds a rig with the broker settings given by keyword."""
    made: list[Rig] = []

    def make(*, store: StoreSettings = SMALL_STORE, **settings: Any) -> Rig:
        rig = Rig(tmp_path / f"store{len(made)}", BrokerSettings(**settings), store)
        made.append(rig)
        return rig

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    return make_rig()
