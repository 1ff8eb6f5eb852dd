"""What a broker tells and asks clients, over the stream of their `Telemetry` call.

The registry speaks remoting to its members: a transaction is to be checked, a message is to be consumed at once, an operator wants to
know what a client is doing. Here these requests become commands of RocketMQ 5, and what a client answers becomes the answer of remoting.

Rules of this file
1. Every question is called back once: with the answer, with a refusal for what clients of RocketMQ 5 cannot be asked, or with None when
   the client is gone or does not answer in time.
2. A client answers with the name that its question had (`nonce`). An answer counts for questions to this client alone.
3. What need not be asked is answered here: what a client has subscribed to stands in its settings.

Source: RocketMQ gRPC, telemetry, commands; remoting, consumer inspection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from orbitmq.broker.core import BrokerCore
from orbitmq.protocol.grpc.delivered_messages import delivered_message
from orbitmq.protocol.grpc.messages import (
    Code,
    PrintThreadStackTraceCommand,
    RecoverOrphanedTransactionCommand,
    Settings,
    Status,
    TelemetryCommand,
    VerifyMessageCommand,
)
from orbitmq.protocol.records import decode_record
from orbitmq.protocol.remoting.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.units import NS_PER_MS

LATE: Final = "questions to clients of gRPC"
"""Name of the wake-up at which clients have not answered in time."""

CONSUMED: Final[Mapping[int, ConsumeResult]] = {
    Code.OK: ConsumeResult.CR_SUCCESS,
    Code.FAILED_TO_CONSUME_MESSAGE: ConsumeResult.CR_LATER,
}
"""How a message was consumed, by the code of the answer; CR_THROW_EXCEPTION for every other."""


class AskedClient(Protocol):
    """A client as far as it is told and asked things: a session."""

    version: str
    settings: Settings
    consumer: ConsumerData | None

    def tell(self, command: TelemetryCommand) -> bool:
        """Send something on the stream; False where there is none that takes it now."""
        ...


class _Question(msgspec.Struct, eq=False):
    """A question that is open. `asked`: the request of remoting that it stands for."""

    session: AskedClient
    asked: Command
    due_ns: int
    callback: Callable[[Command | None], None]


class ClientQuestions:
    """The questions to all clients of a broker. Their number is bounded by who asks (`QUESTIONS_TO_CLIENTS_MAX`)."""

    def __init__(self, core: BrokerCore) -> None:
        self._clock = core.clock
        self._deadlines = core.deadlines
        self._open: dict[str, _Question] = {}
        self._count = 0
        core.deadlines.define(LATE, self._end_late)

    def __len__(self) -> int:
        return len(self._open)

    # --- telling ------------------------------------------------------------------------------------------------------

    def tell(self, session: AskedClient, command: Command) -> None:
        """Tell a client what it does not answer. What has no form in RocketMQ 5 is dropped: its clients find out by themselves."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        record = decode_record(command.body)
        session.tell(
            TelemetryCommand(
                recover_orphaned_transaction_command=RecoverOrphanedTransactionCommand(
                    message=delivered_message(record, record.topic), transaction_id=command.text("transactionId")
                )
            )
        )

    # --- asking -------------------------------------------------------------------------------------------------------

    def ask(
        self, session: AskedClient, command: Command, timeout_ms: int, callback: Callable[[Command | None], None]
    ) -> None:
        """See `ClientSession.request`; may call back at once."""
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO and not command.boolean("jstackEnable"):
            callback(_running_info(session, command, None))
            return
        nonce = str(self._count)
        question = _command_of(session, command, nonce)
        if question is None:
            remark = "clients of RocketMQ 5 cannot be asked this: the broker itself knows how far their groups are"
            callback(response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
        if not session.tell(question):
            callback(None)
            return
        self._count += 1
        due_ns = self._clock.monotonic_ns() + timeout_ms * NS_PER_MS
        self._open[nonce] = _Question(session, command, due_ns, callback)
        self._deadlines.arm(LATE, due_ns)

    def answered(self, session: AskedClient, nonce: str, said: TelemetryCommand) -> None:
        """A client has answered. What answers no open question to it is dropped."""
        question = self._open.get(nonce)
        if question is None or question.session is not session:
            return
        del self._open[nonce]
        if question.asked.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            stack = said.thread_stack_trace.thread_stack_trace or said.status.message
            question.callback(_running_info(session, question.asked, stack))
        else:
            question.callback(_consumed(question.asked, said.status))

    def session_ended(self, session: AskedClient) -> None:
        for nonce in [nonce for nonce, question in self._open.items() if question.session is session]:
            self._open.pop(nonce).callback(None)

    def _end_late(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for nonce in [nonce for nonce, question in self._open.items() if question.due_ns <= now_ns]:
            self._open.pop(nonce).callback(None)
        self._deadlines.move(LATE, min((question.due_ns for question in self._open.values()), default=None))


def _command_of(session: AskedClient, command: Command, nonce: str) -> TelemetryCommand | None:
    """A question in the form of RocketMQ 5; None for one that has none."""
    if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        return TelemetryCommand(print_thread_stack_trace_command=PrintThreadStackTraceCommand(nonce=nonce))
    if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
        record = decode_record(command.body)
        message = delivered_message(record, command.text("topic") or record.topic)
        return TelemetryCommand(verify_message_command=VerifyMessageCommand(nonce=nonce, message=message))
    return None


def _running_info(session: AskedClient, asked: Command, stack: str | None) -> Command:
    """What an operator is told of a client. `stack`: what its threads are doing, as far as it said."""
    consumer = session.consumer
    info = ConsumerRunningInfo(
        properties={
            "PROP_CLIENT_VERSION": session.version,
            "PROP_CONSUME_TYPE": "" if consumer is None else consumer.consume_type.value,
            "PROP_CONSUMEORDERLY": str(session.settings.subscription.fifo).lower(),
            "PROP_THREADPOOL_CORE_SIZE": "0",
            "PROP_NAMESERVER_ADDR": "",
            "PROP_CONSUMER_START_TIMESTAMP": "0",
        },
        subscription_set=[] if consumer is None else consumer.subscription_data_set,
        jstack=stack,
    )
    answer = response(asked, ResponseCode.SUCCESS)
    answer.body = info.encode()
    return answer


def _consumed(asked: Command, status: Status) -> Command:
    """What an operator is told of a message that a client was to consume at once."""
    result = ConsumeMessageDirectlyResult(
        consume_result=CONSUMED.get(status.code, ConsumeResult.CR_THROW_EXCEPTION), remark=status.message or None
    )
    answer = response(asked, ResponseCode.SUCCESS)
    answer.body = result.encode()
    return answer
