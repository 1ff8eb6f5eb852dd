"""Runs the text scripts in `broker/`: how a broker with its delay levels behaves over time.

A script is a list of steps: a command line, `----`, and what is then seen, up to an empty line. Lines that begin with
`#` are comments. With ORBITMQ_REWRITE=1 the scripts are rewritten with what is seen now; read the difference before
committing it.

    send TOPIC BODY [queue=N] [tag=T] [level=N] [times=N]    times: how often it was consumed already
         [scope=S] [epoch=N] [key=K]                         an idempotent send; shows where the message is
         [after=MS] [id=NAME] [keys=K]                       a timer message; id is its unique key
    recall TOPIC | move TOPIC after=MS | status TOPIC        with id=NAME or keys=K [all=true]; shows the verdicts
    waiting TOPIC                                            what is pending, earliest due first
    pull TOPIC QUEUE OFFSET [group=G] [tag=EXPRESSION] [wait=MS] [over=CONNECTION]
    join CONNECTION GROUP TOPIC... [model=BROADCASTING]      leave CONNECTION | close CONNECTION
    commit GROUP TOPIC QUEUE OFFSET      offset GROUP TOPIC QUEUE      reset GROUP TOPIC QUEUE OFFSET
    back GROUP TOPIC QUEUE OFFSET [level=N]                  sends the message at that place back
    lock CONNECTION GROUP TOPIC QUEUE... | unlock CONNECTION GROUP TOPIC QUEUE... [oneway=yes]
    create TOPIC QUEUES [perm=N]         delete TOPIC         advance MS | restart | topics | wakeups
    jump SECONDS                         the machine's wall clock, to and fro
    stored TOPIC QUEUE OFFSET            when by the store, in seconds since the script began

What comes to a connection by itself is shown with its name in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.script.text_scripts import play

from orbitmq.broker.broker import make_broker
from orbitmq.broker.core import Facilities
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.settings import BrokerSettings
from orbitmq.clock import ManualClock, TrustedClock
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequest,
    LockBatchResponse,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, decode, request
from orbitmq.protocol.remoting.timer_bodies import ChangeTimers, TimerAnswers, TimerPage, TimerQuery, TimerSelector
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import OsFiles
from orbitmq.store.opening import open_store
from orbitmq.store.settings import StoreSettings
from orbitmq.store.worker import InlineWorker
from orbitmq.timing.appending import Appenders
from orbitmq.timing.levels.history import HISTORY_FILE, LevelHistory
from orbitmq.timing.levels.offsets import OFFSETS_FILE, LevelOffsets
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.timers.timers import Timers, TimerSettings

SCRIPTS = sorted((Path(__file__).parent / "broker").glob("*.txt"))
MS = 1_000_000
SMALL = StoreSettings(
    mapped_file_size_commit_log=1 << 22,
    mapped_file_size_consume_queue=20_000,
    max_hash_slot_num=1_000,
    max_index_num=4_000,
)


class ScriptPeer:
    def __init__(self, name: str, clock: TrustedClock) -> None:
        self.name = name
        self.address = ("10.0.0.9", 1)
        self.host = pack_host(*self.address)
        self.attachments: dict[str, object] = {}
        self.sent: list[Command] = []
        self.writable = True
        self.closed = False
        self._clock = clock

    @property
    def connection(self) -> ScriptPeer:
        return self

    @property
    def received_ns(self) -> int:
        return self._clock.monotonic_ns()

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def send_answer(self, frame: bytes) -> None:
        self.sent.append(decode(frame))

    def when_writable(self, call: Callable[[], None]) -> None:
        raise AssertionError("this connection always is")

    def send_parts(self, command: Command, parts: Sequence[Any]) -> None:
        command.body = b"".join(map(bytes, parts))
        self.sent.append(command)

    def request(self, command: Command, timeout_ms: int, callback: Callable[[Command | None], None]) -> None:
        raise AssertionError("no script needs requests to clients")

    def close(self, reason: str) -> None:
        self.closed = True


class Script:
    """One broker and the commands of the scripts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.machine = ManualClock()
        self.began_ms = self.machine.now_ms()
        self.shown: list[str] = []
        self.peers: dict[str, ScriptPeer] = {}
        self._opaque = 0
        self._open()

    def _open(self) -> None:
        files, config, machine = OsFiles(), self.root / "config", self.machine
        self.clock = TrustedClock(machine.now_ns, machine.monotonic_ns, machine.monotonic_ns)
        history = LevelHistory.load(ConfigFile(files, config / HISTORY_FILE), DelayLevels.parse(), self.clock.now_ms())
        idempotence = Idempotence(files, self.root, self.clock)
        release = LevelRelease(
            self.clock, history.due_time, LevelOffsets(ConfigFile(files, config / OFFSETS_FILE), self.clock)
        )
        exchange = TimerExchange(files, self.root, 1_000, 172_800)
        timers = Timers(files, self.root, self.clock, TimerSettings(), exchange)
        derived = DerivedState(levels=release, idempotence=idempotence, timers=timers)
        self.store = open_store(
            self.root,
            SMALL,
            files,
            self.clock,
            notify=lambda call: call(),
            due_time=history.due_time,
            derived=derived.recoverable(),
            worker=InlineWorker(),
        )
        facilities = Facilities(
            tables=lambda name: ConfigFile(files, config / name),
            store_host=pack_host("10.0.0.1", 10_911),
            memory_bytes=1 << 30,
            random_below=lambda bound: 0,
        )
        self.broker = make_broker(BrokerSettings(), self.store, self.clock, facilities, derived)
        Appenders(self.store, self.clock, self.broker.rooms.appenders).attach()

    def close(self) -> None:
        self.broker.close()
        self.store.close()

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self, line: str) -> list[str]:
        name, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        self.shown = []
        getattr(self, f"do_{name}")([word for word in words if "=" not in word], options)
        self.show_arrivals()
        return self.shown

    def show_arrivals(self) -> None:
        for name, peer in sorted(self.peers.items()):
            for command in peer.sent:
                if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and not command.is_response:
                    self.shown.append(f"{name}: group {command.text('consumerGroup')} has changed")
                else:
                    self.shown += [f"{name}: {text}" for text in self.pulled(command)]
            peer.sent.clear()

    def peer(self, name: str) -> ScriptPeer:
        if name not in self.peers or self.peers[name].closed:
            self.peers[name] = ScriptPeer(name, self.clock)
        return self.peers[name]

    def ask(
        self, code: int, fields: dict[str, object], body: bytes = b"", over: str = "tool", *, oneway: bool = False
    ) -> Command | None:
        """The answer of this turn, if there is one; what is no success is shown."""
        peer = self.peer(over)
        self._opaque += 1
        texts = {name: str(value) for name, value in fields.items()}
        command = request(code, texts, body, opaque=self._opaque, oneway=oneway)
        answer = self.broker.handle(command, peer)  # type: ignore[arg-type]
        self.broker.end_turn()
        if answer is None:
            for index, sent in enumerate(peer.sent):
                if sent.is_response and sent.opaque == self._opaque:
                    answer = peer.sent.pop(index)
                    break
        if answer is not None and answer.code != ResponseCode.SUCCESS and code != RequestCode.PULL_MESSAGE:
            self.shown.append(ResponseCode(answer.code).name)
            return None
        return answer

    @staticmethod
    def pulled(answer: Command) -> list[str]:
        if answer.code != ResponseCode.SUCCESS:
            next_offset = answer.fields.get("nextBeginOffset")
            return [
                f"{ResponseCode(answer.code).name} next {next_offset}"
                if next_offset
                else ResponseCode(answer.code).name
            ]
        lines = []
        for record in iter_records(bytes(answer.body)):
            times = f" consumed {record.reconsume_times} times" if record.reconsume_times else ""
            origin = decode_properties(record.properties).get("RETRY_TOPIC")
            lines.append(
                f"{record.queue_offset} {bytes(record.body).decode()}{times}{f' from {origin}' if origin else ''}"
            )
        return lines

    # --- commands -----------------------------------------------------------------------------------------------------

    def do_send(self, words: list[str], options: dict[str, str]) -> None:
        topic, text = words
        properties = {"UNIQ_KEY": f"{self._opaque:032d}"}
        once = (("scope", Property.ONCE_SCOPE), ("epoch", Property.ONCE_EPOCH), ("key", Property.ONCE_KEY))
        timed = (("after", "TIMER_DELAY_MS"), ("id", "UNIQ_KEY"), ("keys", "KEYS"))
        for option, name in (("tag", "TAGS"), ("level", "DELAY"), *timed, *once):
            if option in options:
                properties[name] = options[option]
        fields = {
            "a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": options.get("queue", 0), "f": 0, "g": self.clock.now_ms(),
            "h": 0, "i": encode_properties(properties).decode(), "j": options.get("times", 0),
        }  # fmt: skip
        answer = self.ask(RequestCode.SEND_MESSAGE_V2, fields, text.encode())
        if answer is not None and "scope" in options:
            self.shown.append(f"queue {answer.text('queueId')} offset {answer.text('queueOffset')}")

    def do_recall(self, words: list[str], options: dict[str, str]) -> None:
        self.change(RequestCode.RECALL_TIMERS, words[0], options)

    def do_move(self, words: list[str], options: dict[str, str]) -> None:
        self.change(RequestCode.RESCHEDULE_TIMERS, words[0], options, delay_ms=int(options["after"]))

    def do_status(self, words: list[str], options: dict[str, str]) -> None:
        self.change(RequestCode.TIMER_STATUS, words[0], options)

    def change(self, code: int, topic: str, options: dict[str, str], delay_ms: int | None = None) -> None:
        selector = TimerSelector(
            topic=topic, message_id=options.get("id"), key=options.get("keys"), all=options.get("all") == "true"
        )
        answer = self.ask(code, {}, ChangeTimers(selector, delay_ms=delay_ms).encode())
        assert answer is not None
        if answer.code == ResponseCode.SUCCESS:
            for one in TimerAnswers.decode(answer.body).answers:
                self.shown.append(one.verdict if one.timer is None else f"{one.verdict} {one.timer.message_id}")

    def do_waiting(self, words: list[str], options: dict[str, str]) -> None:
        answer = self.ask(RequestCode.LIST_TIMERS, {}, TimerQuery(topic=words[0]).encode())
        assert answer is not None
        now_ms = self.clock.now_ms()
        for one in TimerPage.decode(answer.body).timers:
            self.shown.append(f"{one.message_id} in {one.deliver_ms - now_ms} ms")

    def do_pull(self, words: list[str], options: dict[str, str]) -> None:
        topic, queue_id, offset = words
        fields = {
            "consumerGroup": options.get("group", "g"), "topic": topic, "queueId": queue_id, "queueOffset": offset,
            "maxMsgNums": 32, "sysFlag": 6 if "wait" in options else 4, "commitOffset": 0,
            "suspendTimeoutMillis": options.get("wait", 0), "subscription": options.get("tag", "*"), "subVersion": 0,
        }  # fmt: skip
        answer = self.ask(RequestCode.PULL_MESSAGE, fields, over=options.get("over", "tool"))
        self.shown += ["waits"] if answer is None else self.pulled(answer)

    def do_join(self, words: list[str], options: dict[str, str]) -> None:
        name, group, *topics = words
        consumer = ConsumerData(
            group_name=group,
            message_model=MessageModel(options.get("model", "CLUSTERING")),
            subscription_data_set=[SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in topics],
        )
        body = HeartbeatData(client_id=name, consumer_data_set=[consumer]).encode()
        self.peer(name).attachments["group"] = group
        self.ask(RequestCode.HEART_BEAT, {}, body, over=name)

    def do_leave(self, words: list[str], options: dict[str, str]) -> None:
        group = self.peer(words[0]).attachments["group"]
        self.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": words[0], "consumerGroup": group}, over=words[0])

    def do_close(self, words: list[str], options: dict[str, str]) -> None:
        peer = self.peers.pop(words[0])
        self.broker.peer_closed(peer)  # type: ignore[arg-type]
        self.broker.end_turn()

    def do_commit(self, words: list[str], options: dict[str, str]) -> None:
        answer = self.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            dict(zip(("consumerGroup", "topic", "queueId", "commitOffset"), words, strict=True)),
        )
        if answer is not None and answer.remark:
            self.shown.append("ignored")

    def do_offset(self, words: list[str], options: dict[str, str]) -> None:
        fields = dict(zip(("consumerGroup", "topic", "queueId"), words, strict=True))
        answer = self.ask(RequestCode.QUERY_CONSUMER_OFFSET, dict(fields))
        if answer is not None:
            self.shown.append(answer.text("offset"))

    def do_reset(self, words: list[str], options: dict[str, str]) -> None:
        fields = dict(zip(("group", "topic", "queueId", "offset"), words, strict=True))
        self.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**fields, "timestamp": 0, "isForce": "true"})

    def do_back(self, words: list[str], options: dict[str, str]) -> None:
        group, topic, queue_id, offset = words
        result = self.store.get(topic, int(queue_id), int(offset), 1, 1)
        (record,) = iter_records(bytes(result.records[0]))
        fields = {
            "offset": record.physical_offset, "group": group, "delayLevel": options.get("level", 0), "originTopic": topic,
        }  # fmt: skip
        self.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)

    def locks(self, code: RequestCode, words: list[str], *, oneway: bool = False) -> Command | None:
        name, group, topic, *queues = words
        wanted = [MessageQueue(topic, "broker-a", int(queue)) for queue in queues]
        body = LockBatchRequest(client_id=name, consumer_group=group, mq_set=wanted).encode()
        return self.ask(code, {}, body, over=name, oneway=oneway)

    def do_lock(self, words: list[str], options: dict[str, str]) -> None:
        answer = self.locks(RequestCode.LOCK_BATCH_MQ, words)
        assert answer is not None
        held = LockBatchResponse.decode(answer.body).lock_ok_mq_set
        self.shown.append("holds " + (" ".join(str(queue.queue_id) for queue in sorted(held)) or "nothing"))

    def do_unlock(self, words: list[str], options: dict[str, str]) -> None:
        answer = self.locks(RequestCode.UNLOCK_BATCH_MQ, words, oneway="oneway" in options)
        assert (answer is None) == ("oneway" in options)

    def do_create(self, words: list[str], options: dict[str, str]) -> None:
        topic, queues = words
        fields = {"topic": topic, "readQueueNums": queues, "writeQueueNums": queues, "perm": options.get("perm", 6)}
        self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, "topicFilterType": "SINGLE_TAG"})

    def do_delete(self, words: list[str], options: dict[str, str]) -> None:
        self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": words[0]})

    def do_topics(self, words: list[str], options: dict[str, str]) -> None:
        own = [name for name in self.broker.topics.names() if not self.broker.topics.is_system(name)]
        self.shown.append(" ".join(sorted(own)) or "none")

    def do_wakeups(self, words: list[str], options: dict[str, str]) -> None:
        counted = self.broker.deadlines.wakeups
        self.shown += [f"{name} {count}" for name, count in sorted(counted.items())] or ["none"]

    def do_advance(self, words: list[str], options: dict[str, str]) -> None:
        end = self.clock.monotonic_ns() + int(words[0]) * MS
        while True:
            planned = [self.broker.next_tick_ns, self.store.deadlines.next_ns]
            due = min((at for at in planned if at is not None and at <= end), default=None)
            if due is None:
                break
            self.machine.advance(max(0, -(-(due - self.clock.monotonic_ns()) // MS)))
            self.store.run_due(self.clock.monotonic_ns())
            self.broker.tick()
            self.broker.end_turn()
            for name in [name for name, peer in self.peers.items() if peer.closed]:
                self.shown.append(f"{name}: closed")
                self.broker.peer_closed(self.peers.pop(name))  # type: ignore[arg-type]
        self.machine.advance((end - self.clock.monotonic_ns()) // MS)

    def do_jump(self, words: list[str], options: dict[str, str]) -> None:
        self.machine.set_wall(self.machine.now_ms() + int(words[0]) * 1_000)

    def do_stored(self, words: list[str], options: dict[str, str]) -> None:
        stored_ms = self.store.store_time_at(words[0], int(words[1]), int(words[2]))
        self.shown.append(f"{(stored_ms - self.began_ms) // 1_000} s")

    def do_restart(self, words: list[str], options: dict[str, str]) -> None:
        self.close()
        self.show_arrivals()
        self.peers.clear()
        self._open()


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    script = Script(tmp_path)
    yield script
    script.close()


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_script(path: Path, script: Script) -> None:
    play(path, script.run)


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 6
