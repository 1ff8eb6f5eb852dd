"""Requests about the far table: answered by the broker that owns it, and by the others with who that is.

Rules of this file
1. Bodies, answers and verdicts are those of `protocol/far_table`; what to decide decides `timing/far_table`.
2. A refusal here means that nothing was decided: ask the owner, or ask again later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from orbitmq.broker.admission import Admission
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sending import Sending
from orbitmq.broker.settings import BrokerSettings
from orbitmq.clock import Clock
from orbitmq.errors import ProtocolError
from orbitmq.protocol.far_table import TableAnswer
from orbitmq.protocol.names import AUTO_CREATE_TOPIC
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.timing.far.tier import FarBusyError, FarTierError
from orbitmq.timing.far_table.owner import TableOwner
from orbitmq.timing.far_table.requests import CODES, AnyRequest

OWNER_FIELD: Final = "owner"
"""Of an answer NOT_TABLE_OWNER: the name of the broker that is."""


class FarTableRequests:
    """`owner` is None at a broker that does not own the table; `owner_name` empty where there is none."""

    def __init__(self, owner: TableOwner | None, owner_name: str, broker_name: str) -> None:
        self._owner = owner
        self._owner_name = owner_name
        self._broker_name = broker_name

    def handlers(self) -> dict[RequestCode, Callable[[Command, Peer], Command | None]]:
        return {code: partial(self._answer, kind) for kind, code in CODES.items()}

    def _answer(self, kind: type[AnyRequest], command: Command, peer: Peer) -> Command | None:
        owner = self._owner
        if owner is None:
            raise self._not_owner()
        try:
            request = kind.decode(command.body)
        except ProtocolError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from error
        now: list[Command] = []
        is_later = False

        def told(result: TableAnswer | Exception) -> None:
            answer = _answer_of(command, result)
            if not is_later:
                now.append(answer)
            elif not command.is_oneway:
                peer.send(answer)

        owner.ask(request, told)
        is_later = True
        return now[0] if now else None

    def _not_owner(self) -> Refusal:
        if not self._owner_name:
            return Refusal(
                ResponseCode.NOT_TABLE_OWNER,
                f"broker {self._broker_name!r} has no far table (farTableUrl, farTableOwner)",
                {OWNER_FIELD: ""},
            )
        return Refusal(
            ResponseCode.NOT_TABLE_OWNER,
            f"broker {self._owner_name!r} owns the far table, ask it; this is {self._broker_name!r}",
            {OWNER_FIELD: self._owner_name},
        )


def _answer_of(command: Command, result: TableAnswer | Exception) -> Command:
    if isinstance(result, TableAnswer):
        return response(command, ResponseCode.SUCCESS, body=result.encode())
    if isinstance(result, FarBusyError):
        return response(command, ResponseCode.SYSTEM_BUSY, str(result))
    code = ResponseCode.SERVICE_NOT_AVAILABLE if isinstance(result, FarTierError) else ResponseCode.SYSTEM_ERROR
    return response(command, code, str(result))


class FarTableDesk:
    """What promotion asks about topics."""

    def __init__(self, admission: Admission, settings: BrokerSettings, clock: Clock) -> None:
        self._admission = admission
        self._settings = settings
        self._clock = clock

    def queues(self, topics: Collection[str]) -> dict[str, int | str]:
        return {topic: self._queues(topic) for topic in topics}

    def _queues(self, topic: str) -> int | str:
        sending = Sending(topic, 0, b"", "")
        sending.default_topic = AUTO_CREATE_TOPIC
        sending.default_topic_queues = self._settings.default_topic_queue_nums
        try:
            config = self._admission.topic_of(sending, self._clock.now_ms())
        except Refusal as refusal:
            return refusal.remark
        return config.write_queue_nums or f"topic {topic!r} has no write queue here"
