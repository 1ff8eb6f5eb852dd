"""FAR_TIER: how the far tier does, and what an operator may ask of it.

Rules of this file
1. An action is begun and answered with the state at that moment; whoever wants its end asks again.
2. A copy does nothing to the tier, whose log and files are its master's.
"""

from __future__ import annotations

from typing import Final

from orbitmq.broker.refusal import Refusal
from orbitmq.errors import ProtocolError
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.timer_bodies import FarTierAction, FarTierRequest, FarTierState
from orbitmq.store.store import MessageStore
from orbitmq.timing.appending import NOT_ATTACHED
from orbitmq.timing.far.far_timers import FarTimers


class FarTierRequests:
    def __init__(self, far: FarTimers | None, store: MessageStore) -> None:
        self._far: Final = far
        self._store: Final = store

    def answer(self, command: Command, peer: Peer) -> Command:
        """FAR_TIER."""
        try:
            action = FarTierRequest.decode(command.body).action
        except ProtocolError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from error
        far = self._far
        if action is not FarTierAction.STATUS and self._store.is_copy:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_ATTACHED)
        if action is not FarTierAction.STATUS and (far is None or not far.has_tier):
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, "this broker has no far tier: pip install 'orbitmq[lake]' beside it"
            )
        if far is not None and action is FarTierAction.COMPACT:
            far.compact()
        elif far is not None and action is FarTierAction.RESTORE:
            far.restore_all()
        elif far is not None and action is FarTierAction.REPAIR:
            far.repair()
        return response(command, ResponseCode.SUCCESS, body=far_tier_state(far).encode())


def far_tier_state(far: FarTimers | None) -> FarTierState:
    """What there is, and how it does."""
    if far is None:
        return FarTierState()
    held, keeper = far.held, far.keeper
    return FarTierState(
        is_installed=far.has_tier,
        takes_messages=far.takes_messages,
        pending=held.pending_count,
        in_log=held.buffered.pending_count,
        files=len(held.files.by_name),
        file_rows=sum(file.left for file in held.files.by_name.values()),
        tombstones=len(held.tombstones),
        is_published=keeper is None or not held.files.by_name or keeper.is_published,
        next_due_ms=held.next_deliver_ms,
        damaged=held.files.reasons(),
        trouble=None if keeper is None else keeper.trouble,
        loaded_jobs=len(held.jobs),
        loading={} if keeper is None else keeper.loading.progress(),
    )
