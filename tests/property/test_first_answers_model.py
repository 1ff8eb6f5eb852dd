"""What repeats are told, against a model of a few lines: sends with and without a time, retries, restarted programs, recalls, deleted
topics, orderly stops and kills in any order, through the broker's requests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.conftest import SMALL_STORE
from tests.unit.broker.timers.conftest import TimerRig
from tests.worlds.little_store import close_as_killed

from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.idempotence.repeats import FirstAnswer, Repeats
from orbitmq.broker.settings import BrokerSettings
from orbitmq.protocol.recall_handles import encode_handle
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

TOPICS = ("Topic", "Other")
KINDS: dict[str, dict[str, str]] = {"plain": {}, "delayed": {"DELAY": "2"}, "timed": {"TIMER_DELAY_SEC": "3600"}}
PLACE = ("msgId", "queueId", "queueOffset", "transactionId", "recallHandle")

SENDS = st.tuples(
    st.just("send"), st.sampled_from(TOPICS), st.sampled_from("ab"), st.integers(0, 3), st.sampled_from([*KINDS, "timed"]),
    st.sampled_from(["retry", "restarted"]),
)  # fmt: skip
STEPS = st.one_of(
    SENDS, SENDS, SENDS, st.tuples(st.just("recall"), st.sampled_from(TOPICS), st.sampled_from("ab")),
    st.tuples(st.just("delete"), st.sampled_from(TOPICS)), st.tuples(st.just("kill")), st.tuples(st.just("restart")),
)  # fmt: skip


class First:
    """A send that counts: what its sender was told, and whether it was recalled."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.told = {name: fields[name] for name in PLACE if name in fields}
        self.recalled = False


class World:
    """A broker, and the sends that count: by topic and key, of the last two epochs that came."""

    def __init__(self, root: Path) -> None:
        self.rig = TimerRig(root, BrokerSettings(), SMALL_STORE)
        self.epochs: list[int] = []
        self.firsts: dict[tuple[int, str, str], First] = {}
        self.newest: dict[tuple[str, str], First] = {}
        """By topic and key: what was stored last, whatever its epoch."""
        self.last_id = 0

    def send(self, topic: str, key: str, epoch: int, kind: str, who: str) -> None:
        before = self.newest.get((topic, key))
        if who == "retry" and before is not None:
            message_id = before.told["transactionId"]
        else:
            self.last_id += 1
            message_id = f"ID{self.last_id}"
        values = {"UNIQ_KEY": message_id, "ORBITMQ_SCOPE": "jobs", "ORBITMQ_EPOCH": str(epoch), "ORBITMQ_ONCE_KEY": key}
        answer = self.rig.send(topic, b"body", values | KINDS[kind])
        assert answer is not None
        if epoch not in self.epochs and self.epochs and epoch < self.epochs[-1]:
            assert answer.code == ResponseCode.STALE_EPOCH
            return
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        first = self.firsts.get((epoch, topic, key))
        told = dict(answer.fields or {})
        if first is not None and (not first.recalled or first.told["transactionId"] == message_id):
            assert told.get("orbitmqRepeat") == ("recalled" if first.recalled else "stored")
            assert {name: told[name] for name in PLACE if name in told} == first.told
            return
        assert "orbitmqRepeat" not in told
        assert told["transactionId"] == message_id
        if epoch not in self.epochs:
            self.epochs = [*self.epochs, epoch][-2:]
            self.firsts = {place: one for place, one in self.firsts.items() if place[0] in self.epochs}
        self.firsts[epoch, topic, key] = self.newest[topic, key] = First(told)

    def recall(self, topic: str, key: str) -> None:
        first = self.newest.get((topic, key))
        if first is None or "recallHandle" not in first.told:
            return
        fields = {"producerGroup": "pg", "topic": topic, "recallHandle": first.told["recallHandle"]}
        assert self.rig.call(RequestCode.RECALL_MESSAGE, fields).code == ResponseCode.SUCCESS
        for one in self.firsts.values():  # a retry in a later epoch has the same message id
            if one.told["transactionId"] == first.told["transactionId"] and "recallHandle" in one.told:
                one.recalled = True
        first.recalled = True

    def delete(self, topic: str) -> None:
        self.rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        self.firsts = {place: one for place, one in self.firsts.items() if place[1] != topic}
        self.newest = {place: one for place, one in self.newest.items() if place[0] != topic}

    def restart(self) -> None:
        self.rig.reopen()

    def kill(self) -> None:
        close_as_killed(self.rig.store)
        self.rig.open()


def run(steps: Sequence[tuple[str, ...]]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        world = World(Path(directory))
        try:
            for name, *arguments in steps:
                getattr(world, name)(*arguments)
        finally:
            close_as_killed(world.rig.store)


@settings(max_examples=40)
@given(st.lists(STEPS, max_size=25))
def test_a_repeat_is_told_what_the_first_was_told(steps: list[tuple[str, ...]]) -> None:
    run(steps)


def forgets_no_topic(sends: Idempotence, topic: str, log_end: int) -> None:
    """The end of a topic is not noted."""


def own_handle(repeats: Repeats, place: Any, unique_key: str, now_ms: int) -> FirstAnswer | None:
    """The handle of a repeat is made of what the repeat says."""
    first = first_answer(repeats, place, unique_key)
    if first is None or first.handle is None or first.deliver_ms is None:
        return first
    return first._replace(handle=encode_handle("Topic", "broker-a", first.deliver_ms, unique_key))


def forgets_recalls(repeats: Repeats, place: Any, unique_key: str, now_ms: int) -> FirstAnswer | None:
    """What was recalled is taken for stored."""
    first = first_answer(repeats, place, unique_key)
    return FirstAnswer(place, unique_key) if first is None else first._replace(recalled=False)


first_answer = Repeats.first_answer
SEND: Any = ("send", "Topic", "a", 1, "timed", "restarted")


@pytest.mark.parametrize(
    ("place", "method", "bug", "steps"),
    [
        (Idempotence, "end_topic", forgets_no_topic, [SEND, ("delete", "Topic"), SEND]),
        (Repeats, "first_answer", own_handle, [SEND, SEND]),
        (Repeats, "first_answer", forgets_recalls, [SEND, ("recall", "Topic", "a"), SEND]),
    ],
    ids=["repeat answered for a deleted topic", "handle of a repeat made new", "repeat answered after a recall"],
)
def test_a_planted_bug_is_caught(place: type, method: str, bug: Callable[..., Any], steps: list[Any]) -> None:
    run(steps)
    with mock.patch.object(place, method, bug), pytest.raises(AssertionError):
        run(steps)
