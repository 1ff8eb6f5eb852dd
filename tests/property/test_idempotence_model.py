"""Idempotent sends against a model of a few lines: sends, repeats, epochs, topics, crashes and restarts in any order."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.worlds.little_store import LittleStore

from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.idempotence.identity import SendIdentity, read_identity
from orbitmq.broker.idempotence.memory import KeyBounds, KeyMemory, SentPlace
from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.remoting.commands import ResponseCode

SCOPES = st.sampled_from(["jobs", "~retry"])
SENDS = st.tuples(
    st.just("send"), SCOPES, st.integers(0, 5), st.sampled_from("abc"), st.sampled_from(["Topic", "Other"]),
    st.integers(0, 2),
)  # fmt: skip
STEPS = st.one_of(
    SENDS, SENDS, SENDS, SENDS, st.tuples(st.just("plain")), st.tuples(st.just("rest"), st.sampled_from([1, 250, 6_000])),
    st.tuples(st.just("kill")), st.tuples(st.just("restart")), st.tuples(st.just("forget the file")),
)  # fmt: skip


class Model:
    """Per scope: epochs in the order of their number, of which the last two that came count, with their keys."""

    def __init__(self) -> None:
        self.scopes: dict[str, list[tuple[int, dict[tuple[str, str], SentPlace]]]] = {}

    def find(self, scope: str, epoch: int, key: tuple[str, str]) -> SentPlace | str | None:
        epochs = self.scopes.get(scope, [])
        for known, keys in epochs:
            if known == epoch:
                return keys.get(key)
        return "stale" if epochs and epoch < epochs[-1][0] and not scope.startswith("~") else None

    def add(self, scope: str, epoch: int, key: tuple[str, str], place: SentPlace) -> None:
        epochs = self.scopes.setdefault(scope, [])
        if not epochs or epoch > epochs[-1][0]:
            epochs.append((epoch, {}))
            del epochs[:-2]
        if epoch in dict(epochs):
            dict(epochs)[epoch][key] = place


class Sender:
    """The store with its memory, used as the broker uses it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.little = self.open(None)

    def open(self, before: LittleStore | None) -> LittleStore:
        little = LittleStore(self.root, clock=before.clock if before is not None else None)
        little.idempotence._shorten_from_bytes = 500
        little.idempotence.memory.bounds = KeyBounds(transient_idle_ms=1 << 40)
        return little

    def send(
        self, scope: str, epoch: int, key: str, topic: str, level: int
    ) -> tuple[SentPlace | str | None, SentPlace | None]:
        """What admission said, and where the message went if it went anywhere."""
        little = self.little
        values = {"UNIQ_KEY": key, "ORBITMQ_SCOPE": scope, "ORBITMQ_EPOCH": str(epoch)}
        once = read_identity(topic, values)
        assert isinstance(once, SendIdentity)
        try:
            (found,) = little.idempotence.admit([once], topic, little.clock.now_ms())
        except Refusal as refusal:
            return "stale" if refusal.code == ResponseCode.STALE_EPOCH else refusal.remark, None
        if found is not None:
            return found, None
        placed = little.append(topic, 3, key.encode(), level=level, **values)
        little.idempotence.sent(once, placed, 3)
        little.store.commit()
        return None, SentPlace(placed.physical_offset, placed.queue_offset, 3)

    def restart(self, *, kill: bool) -> None:
        if kill:
            self.little.kill()
        else:
            self.little.close()
        self.little = self.open(self.little)


def run(steps: Sequence[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        sender, model = Sender(Path(directory)), Model()
        for name, *arguments in steps:
            if name == "send":
                scope, epoch, key, topic, level = arguments
                assert isinstance(scope, str)
                assert isinstance(epoch, int)
                assert isinstance(topic, str)
                expected = model.find(scope, epoch, (topic, str(key)))
                found, place = sender.send(scope, epoch, str(key), topic, level)  # type: ignore[arg-type]
                assert found == expected, (name, arguments)
                if place is not None:
                    model.add(scope, epoch, (topic, str(key)), place)
            elif name == "plain":
                sender.little.send(body=b"plain")
            elif name == "rest":
                sender.little.advance(int(arguments[0]))  # type: ignore[call-overload]
            elif name == "forget the file":
                sender.little.advance(300)
                sender.little.kill()
                (sender.root / "orbitmq.once").unlink(missing_ok=True)
                sender.little = sender.open(sender.little)
            else:
                sender.restart(kill=name == "kill")
        sender.little.kill()


@given(st.lists(STEPS, max_size=40))
def test_every_send_is_stored_once_and_every_repeat_told_where(steps: list[tuple[object, ...]]) -> None:
    run(steps)


SEND = ("send", "jobs", 1, "a", "Topic", 0)


@pytest.mark.parametrize(
    ("place", "method", "steps"),
    [
        (Idempotence, "_learn", [SEND, ("kill",), SEND]),
        (KeyMemory, "keep", [SEND, SEND]),
        (KeyMemory, "_keys_for", [SEND, SEND]),
    ],
    ids=["nothing is collected from the log", "nothing is kept", "nothing is found"],
)
def test_a_planted_bug_is_caught(place: type, method: str, steps: list[tuple[object, ...]]) -> None:
    run(steps)
    with mock.patch.object(place, method, return_value=None), pytest.raises(AssertionError):
        run(steps)
