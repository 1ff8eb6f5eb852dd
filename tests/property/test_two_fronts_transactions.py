"""One decision, two fronts: a story of transactions ends alike, told with places over remoting or with ids over gRPC.

Each front has a broker of its own, with the same clock, topics and half messages. After every step they have the same log, the same
undecided transactions, and have answered alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.conftest import SMALL_STORE
from tests.unit.broker.messaging.conftest import WithFront
from tests.unit.broker.transactions.conftest import COMMIT, ROLLBACK, UNKNOWN, TransactionRig

from orbitmq.broker.settings import BrokerSettings
from orbitmq.protocol.grpc.messages import (
    Code,
    EndTransactionRequest,
    EndTransactionResponse,
    Resource,
    TransactionResolution,
    TransactionSource,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.grpc.status import code_of
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

TOPICS = "X", "Y"
RESOLUTIONS = {
    COMMIT: TransactionResolution.COMMIT,
    ROLLBACK: TransactionResolution.ROLLBACK,
    UNKNOWN: TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}


class Front(WithFront, TransactionRig):
    """A front end and its broker. Half messages come over remoting: what a front makes of a send is told elsewhere."""

    def __init__(self, root: Path) -> None:
        self.sent: list[tuple[str, Command]] = []
        super().__init__(root, BrokerSettings(), SMALL_STORE)

    def send_half(self, topic: str, immunity_s: int) -> None:
        said = {"UNIQ_KEY": f"id {len(self.sent)}", "PGROUP": topic}
        if immunity_s:
            said["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(immunity_s)
        self._port = 40_000  # decisions of one front take ports, those of the other one none
        self.sent.append((topic, self.half(topic, b"half %d" % len(self.sent), **said)))

    def decide(self, which: int, state: int, is_answer: bool) -> Code:
        """What a producer is told that decides a half message."""
        topic, sent = self.sent[which % len(self.sent)]
        return self.end_half(topic, sent, state, is_answer)

    def end_half(self, topic: str, sent: Command, state: int, is_answer: bool) -> Code:
        raise NotImplementedError

    def told(self) -> list[tuple[str, list[bytes]]]:
        """Everything in the log, and what is undecided."""
        entries = list(self.store.scan(self.store.log.start))
        records = [bytes(self.store.log.record(entry.physical_offset) or b"") for entry in entries]
        waiting = [b"%d" % known.place.physical_offset for known in self.transactions.undecided]
        return [("log", records), ("undecided", waiting)]


class ByPlace(Front):
    """END_TRANSACTION."""

    def end_half(self, topic: str, sent: Command, state: int, is_answer: bool) -> Code:
        answer = self.end(sent, state, producerGroup=topic, fromTransactionCheck=is_answer)
        return Code.OK if answer is None else code_of(ResponseCode(answer.code))


class ById(Front):
    """EndTransaction."""

    def end_half(self, topic: str, sent: Command, state: int, is_answer: bool) -> Code:
        source = TransactionSource.SOURCE_SERVER_CHECK if is_answer else TransactionSource.SOURCE_CLIENT
        request = EndTransactionRequest(
            topic=Resource(name=topic),
            transaction_id=sent.fields["transactionId"],
            resolution=RESOLUTIONS[state],
            source=source,
        )
        answer = self.client().call(Rpc.END_TRANSACTION, request, EndTransactionResponse)
        return Code(answer.status.code)


class LikeTheProxy(ById):
    """A planted bug: what is known of a half message is used up by its first decision, or lost after 30 s."""

    def __init__(self, root: Path) -> None:
        self.kept: dict[str, int] = {}
        super().__init__(root)

    def send_half(self, topic: str, immunity_s: int) -> None:
        self.kept[f"id {len(self.sent)}"] = self.clock.now_ms()
        super().send_half(topic, immunity_s)

    def end_half(self, topic: str, sent: Command, state: int, is_answer: bool) -> Code:
        kept_ms = self.kept.pop(sent.fields["transactionId"], None)
        if kept_ms is None or self.clock.now_ms() - kept_ms > 30_000:
            return Code.INTERNAL_SERVER_ERROR
        return super().end_half(topic, sent, state, is_answer)


@contextmanager
def fronts(root: Path, second: type[Front] = ById) -> Iterator[tuple[Front, Front]]:
    made = ByPlace(root / "remoting"), second(root / "grpc")
    try:
        yield made
    finally:
        for front in made:
            front.close()


class Step:
    """One step of a story; `take` answers what its front told."""

    def take(self, front: Front) -> object:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}{tuple(vars(self).values())}"


class Half(Step):
    def __init__(self, topic: str, immunity_s: int = 0) -> None:
        self.topic, self.immunity_s = topic, immunity_s

    def take(self, front: Front) -> object:
        try:
            front.send_half(self.topic, self.immunity_s)
        except AssertionError:  # the topic was deleted
            return "refused"
        return front.sent[-1][1].fields


class Decide(Step):
    def __init__(self, which: int, state: int, is_answer: bool = False) -> None:
        self.which, self.state, self.is_answer = which, state, is_answer

    def take(self, front: Front) -> object:
        return front.decide(self.which, self.state, self.is_answer) if front.sent else None


class Pass(Step):
    def __init__(self, ms: int) -> None:
        self.ms = ms

    def take(self, front: Front) -> object:
        return front.advance(self.ms)


class Restart(Step):
    def take(self, front: Front) -> object:
        return front.reopen()


class Kill(Step):
    def take(self, front: Front) -> object:
        return front.kill()


class Delete(Step):
    def __init__(self, topic: str) -> None:
        self.topic = topic

    def take(self, front: Front) -> object:
        return front.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": self.topic}).code


HALVES = st.builds(Half, st.sampled_from(TOPICS), st.sampled_from((0, 0, 0, 10)))
DECISIONS = st.builds(Decide, st.integers(0, 9), st.sampled_from((COMMIT, ROLLBACK, UNKNOWN)), st.booleans())
OTHERS = (
    st.builds(Pass, st.sampled_from((1, 6_001, 31_000)))
    | st.builds(Restart)
    | st.builds(Kill)
    | st.builds(Delete, st.just("Y"))
)
STORIES = st.lists(HALVES | DECISIONS | DECISIONS | OTHERS, max_size=14).map(lambda steps: [Half("X"), *steps])


def differences(made: tuple[Front, Front], story: list[Step]) -> list[str]:
    """What the two fronts do not have in common after a step: nothing."""
    for front in made:
        for topic in TOPICS:
            front.broker.topics.put(TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1), {})
    for number, step in enumerate(story):
        answers = [step.take(front) for front in made]
        if answers[0] != answers[1]:
            return [f"step {number}, {step}: {answers[0]!r} is not {answers[1]!r}"]
        first, second = (front.told() for front in made)
        if first != second:
            return [f"step {number}, {step}: {first} is not {second}"]
    return []


@settings(max_examples=60, deadline=None)
@given(story=STORIES)
def test_both_fronts_tell_the_same_story(tmp_path_factory: pytest.TempPathFactory, story: list[Step]) -> None:
    with fronts(tmp_path_factory.mktemp("stories")) as made:
        assert differences(made, story) == []


LATE = [Half("X"), Pass(31_000), Decide(0, COMMIT)]
TWICE = [Half("X"), Decide(0, COMMIT), Decide(0, COMMIT)]


@pytest.mark.parametrize("story", [LATE, TWICE])
def test_a_front_that_remembers_by_itself_is_caught(tmp_path: Path, story: list[Step]) -> None:
    with fronts(tmp_path / "sound") as made:
        assert differences(made, story) == []
    with fronts(tmp_path / "planted", LikeTheProxy) as made:
        assert differences(made, story) != []
