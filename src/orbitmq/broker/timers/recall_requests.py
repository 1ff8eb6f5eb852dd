"""RECALL_MESSAGE: RocketMQ's request to recall one timer message by its handle, as `recalls` decides.

Source: RocketMQ remoting, RECALL_MESSAGE.
"""

from __future__ import annotations

from orbitmq.broker.put_answers import ANSWERS, IN_PART
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.timers.recalls import RecallOutcome, Recalls, read_handle
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.durability import PutStatus


class RecallRequests:
    def __init__(self, recalls: Recalls) -> None:
        self._recalls = recalls

    def recall(self, command: Command, peer: Peer) -> Command | None:
        """RECALL_MESSAGE (370)."""

        def told(outcome: RecallOutcome) -> None:
            if not command.is_oneway:
                peer.send(_answer(command, outcome))

        outcome = self._recalls.recall(command.text("topic"), command.text("recallHandle"), told)
        return None if outcome is None else _answer(command, outcome)

    def topics(self, command: Command) -> list[str]:
        """The topic of the handle. Raises Refusal."""
        return [read_handle(command.text("recallHandle")).topic]


def _answer(command: Command, outcome: RecallOutcome) -> Command:
    if isinstance(outcome, Refusal):
        return response(command, outcome.code, outcome.remark)
    status = outcome.status
    remark = None if status is PutStatus.PUT_OK else f"the recall {IN_PART[status]}"
    return response(command, ANSWERS[status], remark, {"msgId": outcome.message_id})
