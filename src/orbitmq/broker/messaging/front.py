"""The front end of RocketMQ 5: which module carries out which call, and what becomes of a call that goes wrong.

Rules of this file
1. What a client did wrong, and what the broker refuses, is told in the status of the answer; gRPC's own status stays OK.
2. A call without a client id is answered CLIENT_ID_REQUIRED, whatever it asks: everything that is kept for a client has that name.
3. Where there is a gate, nothing is carried out before it has let the call through, also when a call is asked again; of a stream each
   message. Nothing of a caller who is not known is read.
4. A stream that is ended here is over for whoever carried out what came before on it.
5. Nothing escapes from here. What nobody expected is logged with its traceback and answered INTERNAL_SERVER_ERROR.

Source: RocketMQ gRPC, order of checks, error mapping.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, NoReturn

from orbitmq.access.gate import Denied, Gate
from orbitmq.access.needed import Needed
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.messaging.acknowledging import SettlingCalls
from orbitmq.broker.messaging.forwarding import Forwarding
from orbitmq.broker.messaging.lite_topics import LiteTopicCalls
from orbitmq.broker.messaging.needs import NEEDS
from orbitmq.broker.messaging.recalling import RecallCalls
from orbitmq.broker.messaging.receiving import ReceiveCalls, delivery_item
from orbitmq.broker.messaging.refusals import denied_status, refused_status
from orbitmq.broker.messaging.renewal import Renewals
from orbitmq.broker.messaging.routes import RouteCalls
from orbitmq.broker.messaging.sending import SendCalls
from orbitmq.broker.messaging.served_calls import ServedCall
from orbitmq.broker.messaging.sessions import Sessions
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.messaging.telemetry import TelemetryCalls
from orbitmq.broker.messaging.transactions import TransactionCalls
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.room import NotAnsweredYet
from orbitmq.broker.rooms import BrokerRooms
from orbitmq.errors import OrbitError
from orbitmq.protocol.grpc import messages
from orbitmq.protocol.grpc.call_error import CallError
from orbitmq.protocol.grpc.messages import Code, Status
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.grpc.rpcs import Rpc, Shape
from orbitmq.protocol.grpc.status import RpcError, status_of
from orbitmq.store.reads import RecordsNotInMemory

logger = logging.getLogger("orbitmq.broker")


class MessagingFront:
    """The calls of one broker; a `CallHandler`."""

    def __init__(self, core: BrokerCore, rooms: BrokerRooms, settings: MessagingSettings, port: int = 0) -> None:
        """`port`: where this broker listens for gRPC, for clients that do not say where they found it."""
        self._core = core
        self._gate = core.facilities.gate
        self._sends = rooms.sends
        self.sessions: Final = Sessions(core)
        forwarding = Forwarding(core, rooms.pops, rooms.send_backs)
        self.renewals: Final = Renewals(core, rooms.pops, self.sessions, settings)
        self._receives = ReceiveCalls(core, rooms.pops, self.sessions, self.renewals, forwarding, settings)
        self._served: Final[Mapping[Rpc, ServedCall]] = {
            **SendCalls(core, rooms.sends, settings).calls(),
            **TelemetryCalls(core, self.sessions, settings).calls(),
            **RouteCalls(core, rooms.assignment.routes, port).calls(),
            **self._receives.calls(),
            **SettlingCalls(core, rooms.pops, self.sessions, self.renewals, forwarding, settings).calls(),
            **LiteTopicCalls().calls(),
            **({} if rooms.timers is None else RecallCalls(core, rooms.timers, settings).calls()),
            **({} if rooms.transactions is None else TransactionCalls(rooms.transactions.endings).calls()),
        }

    # --- CallHandler --------------------------------------------------------------------------------------------------

    def message(self, call: OpenCall, message: bytes) -> None:
        rpc = call.call.row.rpc
        served = self._served.get(rpc, _UNSERVED)
        try:
            request = served.read(message) if self._gate is None else _admitted(self._gate, call, served, message)
            if not call.call.client_id:
                raise RpcError(Code.CLIENT_ID_REQUIRED, "the call has no x-mq-client-id")
            served.carry_out(call, request)
        except CallError as error:
            self._forget(call)
            call.fail(error)
        except Denied as denied:
            self._deny(call, denied)
        except RpcError as error:
            self._refuse(call, status_of(error.code, str(error)))
        except Refusal as refusal:
            self._refuse(call, refused_status(refusal))
        except RecordsNotInMemory as missing:
            self._core.store.fetch(missing, partial(self._again, call, message))
        except NotAnsweredYet as later:
            later.wait(partial(self._again, call, message))
        except OSError as error:
            logger.error("%s from %s failed: %s", rpc, call.address, error)
            self._refuse(
                call, status_of(Code.INTERNAL_SERVER_ERROR, f"the store cannot be read or written now: {error}")
            )
        except OrbitError as error:
            self._refuse(call, status_of(Code.INTERNAL_SERVER_ERROR, str(error)))
        except Exception as error:
            self._core.statistics.failed_handler_count += 1
            logger.exception("%s from %s failed", rpc, call.address)
            self._refuse(call, status_of(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"))

    def excess(self, call: OpenCall, message: bytes) -> None:
        if call.call.row.rpc is not Rpc.SEND_MESSAGE:
            self.message(call, message)
            return
        try:
            if self._gate is not None:
                self._gate.admit_call(call, lambda: ())  # what it would need does not matter: it is not sent
        except Denied as denied:
            self._deny(call, denied)
            return
        self._answer(call, refused_status(self._sends.overload("too many requests wait")))

    def close(self) -> None:
        """The broker stops: every session ends, and gives back what it holds."""
        self.sessions.end_all("the broker stops")
        self.renewals.close()
        self._receives.close()

    def over(self, call: OpenCall) -> None:
        self._forget(call)
        call.end()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _forget(self, call: OpenCall) -> None:
        served = self._served.get(call.call.row.rpc, _UNSERVED)
        if served.over is not None:
            served.over(call)

    def _refuse(self, call: OpenCall, status: Status) -> None:
        self._forget(call)
        self._answer(call, status)

    def _deny(self, call: OpenCall, denied: Denied) -> None:
        """Say no, later to who has failed too often. Whoever has cancelled until then was told that it is over."""
        self._forget(call)
        status = denied_status(denied)
        if denied.wait_ms:
            self._core.late_answers.send(
                call.connection, lambda: self._answer(call, status) if call.is_wanted else None, denied.wait_ms
            )
        else:
            self._answer(call, status)

    def _again(self, call: OpenCall, message: bytes) -> None:
        """What a call waited for may be there. Nothing was changed by it before: it begins anew, unless its caller is gone."""
        if call.is_wanted:
            self.message(call, message)

    def _answer(self, call: OpenCall, status: Status) -> None:
        """End a call with nothing but a status, and what the last item of its stream has to be."""
        row = call.call.row
        if row.shape is Shape.BIDIRECTIONAL:
            answer = messages.TelemetryCommand(status=status)
        else:
            answer = getattr(messages, f"{row.rpc}Response")(status=status)
        call.answer(answer.SerializeToString())
        if row.shape is Shape.SERVER_STREAM:
            call.answer(delivery_item(self._core.clock.now_ms()))
        call.end()


def _admitted(gate: Gate, call: OpenCall, served: ServedCall, message: bytes) -> Any:
    """The request of a call that a gate lets through; it is read once. Raises what reading raises, and `Denied`."""
    found: list[Any] = []

    def needs() -> Iterable[Needed]:
        found.append(served.read(message))
        return NEEDS[call.call.row.rpc](found[0])

    call.user = gate.admit_call(call, needs)
    return found[0] if found else served.read(message)


def _not_served(data: bytes) -> NoReturn:
    raise RpcError(Code.NOT_IMPLEMENTED, "this broker does not serve the call")


_UNSERVED: Final = ServedCall(_not_served, lambda call, request: None)
"""A call whose request nobody reads."""
