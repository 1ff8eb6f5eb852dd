"""Sends with windows against a dictionary: keys, windows of any length, time, deleted topics, orderly stops and kills in any order, through
the broker's requests."""

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

from orbitmq.broker.idempotence import memory as memory_module
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.idempotence.repeats import Repeats
from orbitmq.broker.idempotence.windows import Windows
from orbitmq.broker.settings import BrokerSettings
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

TOPICS = ("Topic", "Other")
WINDOWS_MS = (1_000, 1_500, 60_000, 3_600_000, 86_400_000)
PLACE = ("msgId", "queueId", "queueOffset", "transactionId")

SENDS = st.tuples(
    st.just("send"),
    st.sampled_from(TOPICS),
    st.sampled_from("abc"),
    st.sampled_from(WINDOWS_MS),
    st.sampled_from([{}, {"DELAY": "2"}]),
)
STEPS = st.one_of(
    SENDS, SENDS, SENDS, st.tuples(st.just("rest"), st.sampled_from([1, 499, 500, 1_000, 59_000, 3_600_000, 30_000_000])),
    st.tuples(st.just("delete"), st.sampled_from(TOPICS)), st.tuples(st.just("kill")), st.tuples(st.just("restart")),
)  # fmt: skip


class World:
    """A broker, and until when each key is known, with what its sender was told."""

    def __init__(self, root: Path) -> None:
        self.rig = TimerRig(root, BrokerSettings(), SMALL_STORE)
        self.known: dict[tuple[str, str], tuple[int, dict[str, str]]] = {}
        self.last_id = 0

    def send(self, topic: str, key: str, window_ms: int, more: dict[str, str]) -> None:
        self.last_id += 1
        values = {
            "UNIQ_KEY": f"ID{self.last_id}",
            "ORBITMQ_SCOPE": f"^{topic}/shop",
            "ORBITMQ_ONCE_WINDOW": str(window_ms),
            "ORBITMQ_ONCE_KEY": key,
        }
        now_ms = self.rig.clock.now_ms()
        answer = self.rig.send(topic, b"body", values | more)
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        fields = dict(answer.fields or {})
        told = {name: fields[name] for name in PLACE}
        until_ms, first = self.known.get((topic, key), (0, {}))
        if now_ms < until_ms:
            assert "orbitmqRepeat" in fields, "it is a repeat"
            assert told == first
        else:
            assert "orbitmqRepeat" not in fields, "it is a new message"
            assert told["transactionId"] == values["UNIQ_KEY"]
            self.known[topic, key] = now_ms + window_ms, told

    def rest(self, ms: int) -> None:
        self.rig.clock.advance(ms)

    def delete(self, topic: str) -> None:
        self.rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        self.known = {place: one for place, one in self.known.items() if place[0] != topic}

    def restart(self) -> None:
        self.rig.reopen()

    def kill(self) -> None:
        close_as_killed(self.rig.store)
        self.rig.open()

    def check(self) -> None:
        """What is remembered is what is counted, and no more than may be alive."""
        memory = self.rig.idempotence.memory
        assert memory.key_count == sum(keys.count for keys in memory.windows)
        assert memory.used_bytes >= sum(keys.used_bytes for keys in memory.windows)


def run(steps: Sequence[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        world = World(Path(directory))
        try:
            for name, *arguments in steps:
                getattr(world, name)(*arguments)
                world.check()
        finally:
            close_as_killed(world.rig.store)


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=30))
def test_a_key_is_known_for_its_window_and_not_longer(steps: list[tuple[Any, ...]]) -> None:
    run(steps)


def ends_early(sent_ms: int, window_ms: int) -> int:
    """The end is rounded down."""
    return (sent_ms + window_ms) // 32_768 * 32_768


def looks_at_one_set(windows: Windows, identity: Any, now_ms: int) -> int | None:
    """A key is looked for where it would be put."""
    keys = windows.keys_of(identity.scope, memory_module.end_of(now_ms, identity.window_ms))
    return None if keys is None else keys.get(identity.digest)


def never_over(repeats: Repeats, place: Any, unique_key: str, now_ms: int) -> Any:
    return first_answer(repeats, place, unique_key)


first_answer = Repeats.first_answer
HOUR = 3_600_000
SEND: Any = ("send", "Topic", "a", HOUR, {})


@pytest.mark.parametrize(
    ("place", "name", "bug", "steps"),
    [
        (Repeats, "first_answer", never_over, [SEND, ("rest", HOUR), SEND]),
        (memory_module, "end_of", ends_early, [SEND, ("rest", HOUR - 1), SEND]),
        (Windows, "find", looks_at_one_set, [SEND, ("rest", HOUR - 1), SEND]),
        (Windows, "find", lambda *_: None, [SEND, SEND]),
        (Idempotence, "_learn", lambda *_: None, [SEND, ("kill",), SEND]),
    ],
    ids=[
        "never over",
        "over too early",
        "one set is looked at",
        "nothing is found",
        "nothing is collected from the log",
    ],
)
def test_a_planted_bug_is_caught(place: Any, name: str, bug: Callable[..., Any], steps: list[Any]) -> None:
    run(steps)
    with mock.patch.object(place, name, bug), pytest.raises(AssertionError):
        run(steps)
