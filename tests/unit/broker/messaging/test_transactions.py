"""EndTransaction: decisions by topic and id, and the questions that lead to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.broker.conftest import SMALL_STORE, ListPeer
from tests.unit.broker.messaging.conftest import WithFront
from tests.unit.broker.messaging.test_telemetry import producer_says
from tests.unit.broker.transactions.conftest import COMMIT, ROLLBACK, TransactionRig
from tests.worlds.grpc_calls import ListCall, commands

from orbitmq.broker.message_types import MESSAGE_TYPE
from orbitmq.broker.messaging.sessions import Session
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.transactions.undecided import Undecided
from orbitmq.limits.transactions import SAME_ID_MAX
from orbitmq.protocol.grpc.messages import (
    Code,
    Duration,
    EndTransactionRequest,
    EndTransactionResponse,
    Message,
    MessageType,
    RecoverOrphanedTransactionCommand,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    SystemProperties,
    TelemetryCommand,
    TransactionResolution,
    TransactionSource,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.settings import StoreSettings

TOPIC = "X"
COMMITTED = TransactionResolution.COMMIT
ROLLED_BACK = TransactionResolution.ROLLBACK
FIRST_CHECK_MS, NEXT_CHECK_MS = 6_001, 30_001


class TransactionFrontRig(WithFront, TransactionRig):
    """A broker with two topics for transactions."""

    def open(self) -> None:
        super().open()
        for name in (TOPIC, "Y"):
            config = TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)
            self.broker.topics.put(config, {f"+{MESSAGE_TYPE}": "TRANSACTION"})

    def sent(
        self, message_id: str, body: bytes = b"half", topic: str = TOPIC, recovery_s: int | None = None
    ) -> SendMessageResponse:
        """The answer to a half message."""
        system = SystemProperties(message_id=message_id, message_type=MessageType.TRANSACTION)
        if recovery_s is not None:
            system.orphaned_transaction_recovery_duration.CopyFrom(Duration(seconds=recovery_s))
        message = Message(topic=Resource(name=topic), body=body, system_properties=system)
        answer: SendMessageResponse = self.client().call(
            Rpc.SEND_MESSAGE, SendMessageRequest(messages=[message]), SendMessageResponse
        )
        assert answer.status.code == Code.OK, answer.status
        return answer

    def decide(
        self,
        message_id: str,
        resolution: int = COMMITTED,
        topic: str = TOPIC,
        source: int = TransactionSource.SOURCE_CLIENT,
    ) -> tuple[int, str]:
        """Code and text of the answer to a decision."""
        status = self.client().call(
            Rpc.END_TRANSACTION, decision(message_id, resolution, topic, source), EndTransactionResponse
        ).status  # fmt: skip
        return status.code, status.message

    def member(self, client_id: str, topic: str = TOPIC) -> ListCall:
        """The stream of a producer of the topic."""
        stream = self.client(client_id).connect(producer_says(topic))
        commands(stream)
        return stream


def decision(
    message_id: str,
    resolution: int = COMMITTED,
    topic: str = TOPIC,
    source: int = TransactionSource.SOURCE_CLIENT,
) -> EndTransactionRequest:
    return EndTransactionRequest(
        topic=Resource(name=topic),
        message_id=message_id,
        transaction_id=message_id,
        resolution=resolution,
        source=source,
    )


def asked(stream: ListCall) -> list[RecoverOrphanedTransactionCommand]:
    """The questions that came on a stream since this was asked last."""
    return [
        command.recover_orphaned_transaction_command
        for command in commands(stream)
        if command.HasField("recover_orphaned_transaction_command")
    ]


MakeFront = Callable[..., TransactionFrontRig]
OK = (Code.OK, "OK")


@pytest.fixture
def make_front(tmp_path: Path) -> Iterator[MakeFront]:
    made: list[TransactionFrontRig] = []

    def make(
        store: StoreSettings = SMALL_STORE, kind: type[TransactionFrontRig] = TransactionFrontRig
    ) -> TransactionFrontRig:
        made.append(kind(tmp_path / f"store{len(made)}", BrokerSettings(), store))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def tx(make_front: MakeFront) -> TransactionFrontRig:
    return make_front()


class TestDecisions:
    def test_a_half_message_is_answered_with_the_id_by_which_it_is_decided(self, tx: TransactionFrontRig) -> None:
        (entry,) = tx.sent("A").entries
        assert (entry.message_id, entry.transaction_id) == ("A", "A")
        assert (tx.undecided, tx.bodies(TOPIC)) == (1, [])

    def test_a_commit_delivers_and_is_answered_when_it_is_safe(self, tx: TransactionFrontRig) -> None:
        tx.sent("A")
        call = tx.client().begin(Rpc.END_TRANSACTION)
        tx.front.message(call, decision("A").SerializeToString())
        assert (call.answers, call.ends) == ([], 0)
        tx.broker.end_turn()
        (answer,) = call.answers
        assert (EndTransactionResponse.FromString(answer).status.code, call.ends) == (Code.OK, 1)
        assert (tx.undecided, tx.bodies(TOPIC)) == (0, [b"half"])

    def test_a_rollback_delivers_nothing(self, tx: TransactionFrontRig) -> None:
        tx.sent("A")
        assert tx.decide("A", ROLLED_BACK) == OK
        assert (tx.undecided, tx.bodies(TOPIC), tx.ops()) == (0, [], [(b"0,", "rolled back")])

    def test_who_does_not_know_yet_changes_nothing(self, tx: TransactionFrontRig) -> None:
        tx.sent("A")
        before = tx.store.log.end
        assert tx.decide("A", TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED) == OK
        assert (tx.undecided, tx.store.log.end) == (1, before)
        assert tx.decide("A") == OK

    @pytest.mark.parametrize("between", ["nothing", "a restart", "a kill", "a day"])
    @pytest.mark.parametrize(("first", "other"), [(COMMITTED, ROLLED_BACK), (ROLLED_BACK, COMMITTED)])
    def test_a_repeated_decision_stores_nothing_and_the_contrary_is_refused(
        self, tx: TransactionFrontRig, first: int, other: int, between: str
    ) -> None:
        tx.sent("A")
        assert tx.decide("A", first) == OK
        pass_by(tx, between)
        before = tx.store.log.end
        assert tx.decide("A", first) == OK
        code, text = tx.decide("A", other)
        assert (code, "cannot be" in text) == (Code.BAD_REQUEST, True)
        assert tx.store.log.end == before

    @pytest.mark.parametrize("between", ["a restart", "a kill", "a minute"])
    def test_a_half_message_is_known_by_its_id_until_it_is_decided(self, tx: TransactionFrontRig, between: str) -> None:
        tx.sent("A")
        pass_by(tx, between)
        assert tx.decide("A") == OK
        assert tx.bodies(TOPIC) == [b"half"]

    def test_the_same_decision_of_one_turn_is_one_decision(self, tx: TransactionFrontRig) -> None:
        tx.sent("A")
        calls = [tx.client().begin(Rpc.END_TRANSACTION) for _ in range(3)]
        for call, resolution in zip(calls, (COMMITTED, COMMITTED, ROLLED_BACK), strict=True):
            tx.front.message(call, decision("A", resolution).SerializeToString())
        tx.broker.end_turn()
        codes = [EndTransactionResponse.FromString(call.answers[0]).status.code for call in calls]
        assert codes == [Code.OK, Code.OK, Code.BAD_REQUEST]
        assert (tx.bodies(TOPIC), len(tx.ops())) == ([b"half"], 1)

    def test_a_decision_about_what_ended_nobody_knows_how_is_refused(
        self, tx: TransactionFrontRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tx.sent("A")
        assert tx.decide("A") == OK
        monkeypatch.setattr("orbitmq.broker.transactions.showing.ending_of", lambda properties: None)
        code, text = tx.decide("A")
        assert (code, "not known any more" in text) == (Code.BAD_REQUEST, True)

    def test_a_decision_about_what_was_given_up_is_refused(self, tx: TransactionFrontRig) -> None:
        tx.sent("A")
        for _ in range(17):
            tx.advance(NEXT_CHECK_MS)
        assert len(tx.records(TRANS_CHECK_MAX_TIME_TOPIC)) == 1
        code, text = tx.decide("A")
        assert (code, "given up" in text) == (Code.BAD_REQUEST, True)

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"transaction_id": ""}, Code.INVALID_TRANSACTION_ID),
            ({"transaction_id": " \t"}, Code.INVALID_TRANSACTION_ID),
            ({"transaction_id": "B"}, Code.NOT_FOUND),
            ({"transaction_id": "A\0"}, Code.NOT_FOUND),
            ({"transaction_id": "é" * 1_000_000}, Code.NOT_FOUND),
            ({"topic": Resource(name="Y")}, Code.NOT_FOUND),
            ({"topic": Resource(name="nowhere")}, Code.NOT_FOUND),
            ({"topic": Resource()}, Code.ILLEGAL_TOPIC),
            ({"topic": Resource(name="RMQ_SYS_TRANS_HALF_TOPIC")}, Code.ILLEGAL_TOPIC),
            ({"resolution": 3}, Code.BAD_REQUEST),
            ({"resolution": -1}, Code.BAD_REQUEST),
            ({"transaction_id": "", "resolution": 0}, Code.INVALID_TRANSACTION_ID),
        ],
    )  # fmt: skip
    def test_what_a_decision_gets_wrong_is_said_and_changes_nothing(
        self, tx: TransactionFrontRig, changes: dict[str, object], code: Code
    ) -> None:
        tx.sent("A")
        request = decision("A")
        for name in changes:
            request.ClearField(name)  # type: ignore[arg-type]
        request.MergeFrom(EndTransactionRequest(**changes))  # type: ignore[arg-type]
        status = tx.client().call(Rpc.END_TRANSACTION, request, EndTransactionResponse).status
        assert status.code == code
        assert status.message
        assert (tx.undecided, tx.ops()) == (1, [])

    def test_a_topic_that_is_gone_can_only_be_rolled_back(self, tx: TransactionFrontRig) -> None:
        tx.sent("A")
        tx.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
        assert tx.decide("A")[0] == Code.TOPIC_NOT_FOUND
        assert tx.undecided == 1
        assert tx.decide("A", ROLLED_BACK) == OK

    def test_a_decision_that_cannot_be_written_is_told_and_leaves_the_transaction_undecided(
        self, tx: TransactionFrontRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tx.sent("A")
        tx.sent("A")

        def fail(self: CommitLog) -> None:
            raise OSError(28, "no space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(CommitLog, "write", fail)
            code, text = tx.decide("A")
        assert (code, "not stored safely" in text) == (Code.INTERNAL_SERVER_ERROR, True)
        assert (tx.undecided, tx.bodies(TOPIC)) == (2, [])
        tx.kill()
        assert tx.decide("A", ROLLED_BACK) == OK
        assert (tx.undecided, tx.bodies(TOPIC)) == (0, [])

    def test_the_largest_message_that_may_be_sent_can_be_committed(self, make_front: MakeFront) -> None:
        tx = make_front(StoreSettings())
        body = bytes(4 * 1024 * 1024)
        tx.sent("A", body)
        assert tx.decide("A") == OK
        assert tx.bodies(TOPIC) == [body]


def pass_by(tx: TransactionFrontRig, what: str) -> None:
    if what == "a restart":
        tx.reopen()
    elif what == "a kill":
        tx.kill()
    elif what == "a minute":
        tx.advance(60_000)
    elif what == "a day":
        tx.advance(86_400_000)


class TestIds:
    def test_an_id_in_another_topic_is_another_transaction(self, tx: TransactionFrontRig) -> None:
        tx.sent("A", b"mine")
        tx.sent("A", b"theirs", topic="Y")
        assert tx.decide("A") == OK
        assert (tx.bodies(TOPIC), tx.bodies("Y"), tx.undecided) == ([b"mine"], [], 1)
        assert tx.decide("A", ROLLED_BACK, topic="Y") == OK
        assert tx.decide("A") == OK
        assert tx.decide("A", topic="Y")[0] == Code.BAD_REQUEST

    @pytest.mark.parametrize(("resolution", "delivered"), [(COMMITTED, 2), (ROLLED_BACK, 0)])
    def test_a_half_message_that_was_sent_again_is_decided_with_the_first(
        self, tx: TransactionFrontRig, resolution: int, delivered: int
    ) -> None:
        tx.sent("A")
        tx.sent("A")
        call = tx.client().start(Rpc.END_TRANSACTION, decision("A", resolution))
        assert (len(call.answers), call.ends) == (1, 1)
        assert (tx.undecided, len(tx.bodies(TOPIC))) == (0, delivered)
        assert tx.decide("A", resolution) == OK
        assert len(tx.bodies(TOPIC)) == delivered

    def test_one_of_several_that_cannot_be_read_is_told_and_asking_again_decides_it(
        self, tx: TransactionFrontRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tx.sent("A", b"first")
        tx.sent("A", b"second")
        _, second = (record.physical_offset for record in tx.halves())
        whole = tx.store.record_at
        with monkeypatch.context() as patch:
            patch.setattr(tx.store, "record_at", lambda at: None if at == second else whole(at))
            code, text = tx.decide("A")
        assert (code, "damaged" in text) == (Code.INTERNAL_SERVER_ERROR, True)
        assert (tx.bodies(TOPIC), tx.undecided) == ([b"first"], 1)
        assert tx.decide("A") == OK
        assert (tx.bodies(TOPIC), tx.undecided) == ([b"first", b"second"], 0)

    def test_a_decision_takes_as_many_with_one_id_as_may_be_and_checks_bring_the_others_back(
        self, tx: TransactionFrontRig
    ) -> None:
        for number in range(SAME_ID_MAX + 1):
            tx.sent("A", b"%d" % number)
        assert tx.decide("A") == OK
        assert tx.undecided == 1
        assert b"0" not in tx.bodies(TOPIC)
        tx.advance(FIRST_CHECK_MS)
        assert tx.decide("A", ROLLED_BACK) == OK
        assert tx.undecided == 0

    def test_nothing_is_remembered_of_what_is_decided(self, tx: TransactionFrontRig) -> None:
        for number in range(10):
            tx.sent(f"A{number % 3}")
        tx.advance(FIRST_CHECK_MS)
        for number in range(3):
            assert tx.decide(f"A{number}") == OK
        undecided: Undecided = tx.transactions.undecided
        assert undecided._with_id == {}


class TestBothFronts:
    def test_a_half_message_of_remoting_is_decided_over_grpc(self, tx: TransactionFrontRig) -> None:
        sent = tx.half(TOPIC, UNIQ_KEY="A", PGROUP="another group")
        assert tx.decide("A") == OK
        assert tx.ended(sent, COMMIT, producerGroup="another group")[0] == 0
        assert tx.ended(sent, ROLLBACK, producerGroup="another group")[0] != 0
        assert tx.bodies(TOPIC) == [b"half"]

    def test_a_half_message_of_grpc_is_decided_over_remoting(self, tx: TransactionFrontRig) -> None:
        peer = tx.peer()
        tx.heartbeat(peer, "4.x", producer=TOPIC)
        tx.sent("A")
        tx.advance(FIRST_CHECK_MS)
        (question,) = tx.questions(peer)
        assert tx.ended(question, ROLLBACK, producerGroup=TOPIC)[0] == 0
        assert tx.decide("A", ROLLED_BACK) == OK
        assert tx.decide("A")[0] == Code.BAD_REQUEST

    def test_producers_of_both_kinds_with_one_name_are_one_group(self, tx: TransactionFrontRig) -> None:
        peer, stream = tx.peer(), tx.member("5.x")
        tx.heartbeat(peer, "4.x", producer=TOPIC)
        tx.sent("A")
        heard = []
        for wait_ms in (FIRST_CHECK_MS, *[NEXT_CHECK_MS] * 3):
            tx.advance(wait_ms)
            tx.client("5.x").start(Rpc.HEARTBEAT, EndTransactionRequest())
            tx.heartbeat(peer, "4.x", producer=TOPIC)
            heard.append((len(tx.questions(peer)), len(asked(stream))))
        assert sorted(heard) == [(0, 1), (0, 1), (1, 0), (1, 0)]


class TestTimeToCheck:
    """A half message with a time of its own is decided by answers to checks alone once that has passed."""

    def late(self, tx: TransactionFrontRig) -> None:
        tx.sent("A", recovery_s=10)
        tx.advance(10_001)

    def test_the_client_itself_is_too_late(self, tx: TransactionFrontRig) -> None:
        self.late(tx)
        code, text = tx.decide("A")
        assert (code, "only the answer to a check" in text) == (Code.BAD_REQUEST, True)
        assert tx.undecided == 1

    def test_an_answer_to_a_check_counts(self, tx: TransactionFrontRig) -> None:
        self.late(tx)
        assert tx.decide("A", source=TransactionSource.SOURCE_SERVER_CHECK) == OK

    def test_a_decision_that_does_not_say_counts_as_an_answer_when_there_was_a_question(
        self, tx: TransactionFrontRig
    ) -> None:
        self.late(tx)
        assert tx.decide("A", source=TransactionSource.SOURCE_UNSPECIFIED) == OK

    def test_and_before_the_question_it_is_one_of_the_client(self, tx: TransactionFrontRig) -> None:
        tx.sent("A", recovery_s=10)
        tx.clock.advance(10_001)
        assert tx.decide("A", source=TransactionSource.SOURCE_UNSPECIFIED)[0] == Code.BAD_REQUEST


class TestChecks:
    def test_a_producer_is_shown_the_message_that_it_sent(self, tx: TransactionFrontRig) -> None:
        stream = tx.member("5.x")
        tx.sent("A", b"body")
        tx.advance(FIRST_CHECK_MS)
        (question,) = asked(stream)
        said = question.message
        assert (question.transaction_id, said.system_properties.message_id) == ("A", "A")
        assert (said.topic.name, said.body) == (TOPIC, b"body")
        assert said.system_properties.message_type == MessageType.TRANSACTION
        assert dict(said.user_properties) == {}
        assert not said.system_properties.HasField("receipt_handle")
        answer = decision(question.transaction_id, source=TransactionSource.SOURCE_SERVER_CHECK)
        status = tx.client("5.x").call(Rpc.END_TRANSACTION, answer, EndTransactionResponse).status
        assert (status.code, tx.bodies(TOPIC)) == (Code.OK, [b"body"])
        tx.advance(NEXT_CHECK_MS)
        assert asked(stream) == []

    def test_a_question_about_a_message_of_remoting_can_be_answered(self, tx: TransactionFrontRig) -> None:
        """Its group has the name of one topic, its message goes to another: the answer names the topic of the message."""
        stream = tx.member("5.x")
        tx.half("Y", UNIQ_KEY="A", PGROUP=TOPIC)
        tx.advance(FIRST_CHECK_MS)
        (question,) = asked(stream)
        assert question.message.topic.name == "Y"
        assert tx.decide(question.transaction_id, topic="Y") == OK
        assert tx.bodies("Y") == [b"half"]

    def test_a_member_of_another_topic_is_not_asked(self, tx: TransactionFrontRig) -> None:
        stream = tx.member("5.x", "Y")
        tx.sent("A")
        tx.advance(FIRST_CHECK_MS)
        assert asked(stream) == []

    def test_who_may_not_publish_is_not_asked(self, make_front: MakeFront) -> None:
        class OnlyHer:
            """A gate that lets everything through but questions to others."""

            def admit_call(self, call: ListCall, needs: object) -> str:
                return call.user

            def may_publish(self, user: str, address: str, topic: str) -> bool:
                return user == "her"

        class Guarded(TransactionFrontRig):
            gate = OnlyHer()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("orbitmq.broker.broker.Broker.handle", lambda *_: None)
            tx = make_front(kind=Guarded)
            streams = [open_as(tx, user) for user in ("him", "her", "him")]
            tx.sent("A")
            for wait_ms in (FIRST_CHECK_MS, NEXT_CHECK_MS, NEXT_CHECK_MS):
                tx.advance(wait_ms)
        assert [len(asked(stream)) for stream in streams] == [0, 3, 0]

    @pytest.mark.parametrize("trouble", ["no stream", "full", "gone"])
    def test_a_question_goes_to_whoever_can_take_it(self, tx: TransactionFrontRig, trouble: str) -> None:
        out_of_reach, reached = tx.member("one"), tx.member("two")
        if trouble == "no stream":
            tx.client("one").cancel(out_of_reach)
        elif trouble == "full":
            out_of_reach.writable = False
        else:
            out_of_reach.is_wanted = False
        tx.sent("A")
        for wait_ms in (FIRST_CHECK_MS, NEXT_CHECK_MS, NEXT_CHECK_MS):
            tx.advance(wait_ms)
        assert (len(asked(out_of_reach)), len(asked(reached))) == (0, 3)
        assert tx.broker.rooms.transactions is not None
        assert tx.broker.rooms.transactions.checks.asked_count == 3

    def test_a_connection_with_a_backlog_is_passed_over_too(self, tx: TransactionFrontRig) -> None:
        slow: ListPeer = tx.peer()
        tx.heartbeat(slow, "4.x", producer=TOPIC)
        slow.take()
        slow.writable = False
        stream = tx.member("5.x")
        tx.sent("A")
        tx.advance(FIRST_CHECK_MS)
        tx.advance(NEXT_CHECK_MS)
        assert (tx.questions(slow), len(asked(stream))) == ([], 2)

    def test_with_nobody_who_takes_it_the_check_counts_all_the_same(self, tx: TransactionFrontRig) -> None:
        tx.client("one").cancel(tx.member("one"))
        tx.sent("A")
        tx.advance(FIRST_CHECK_MS)
        (known,) = tx.transactions.undecided
        assert known.check_count == 1
        assert decode_properties(tx.halves()[-1].properties)[Property.TRANSACTION_CHECK_TIMES] == "1"

    def test_a_question_comes_on_the_stream_that_took_the_place_of_another(self, tx: TransactionFrontRig) -> None:
        assert wrong_streams(tx) == []

    def test_a_question_on_a_replaced_stream_is_noticed(self, tx: TransactionFrontRig) -> None:
        """A planted bug: a session keeps the stream that it had first."""
        slot = Session.__dict__["stream"]

        def keep_first(session: Session, stream: ListCall | None) -> None:
            had = slot.__get__(session, Session) if hasattr(session, "seen_ns") else None
            slot.__set__(session, had or stream)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Session, "stream", property(slot.__get__, keep_first))
            assert wrong_streams(tx) != []


def open_as(tx: TransactionFrontRig, user: str) -> ListCall:
    client = tx.client(f"{user} {len(tx.front.sessions)}")
    stream = client.begin(Rpc.TELEMETRY)
    stream.user = user
    client.send(stream, TelemetryCommand(settings=producer_says(TOPIC)))
    commands(stream)
    return stream


def wrong_streams(tx: TransactionFrontRig) -> list[str]:
    """What goes wrong when a client opens a second stream before its first one has ended, as after a broken connection."""
    first = tx.member("one")
    second = tx.member("one")
    tx.sent("A")
    tx.advance(FIRST_CHECK_MS)
    found = [] if len(asked(second)) == 1 else ["the question did not come on the second stream"]
    if asked(first):
        found.append("it came on the first")
    tx.client("one").cancel(first)
    tx.advance(NEXT_CHECK_MS)
    return (
        found if len(asked(second)) == 1 else [*found, "the end of the first stream was taken for that of the second"]
    )
