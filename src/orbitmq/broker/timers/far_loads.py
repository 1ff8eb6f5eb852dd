"""FAR_LOAD: a job's files become messages of the far tier.

Rules of this file
1. What became of a job is answered before anything else is looked at, and only when it is durable.
2. Files that begin to be checked are a line of the audit log, with their job; requests that ask how far that is are none.
3. A request that cannot count any more is refused by its age. Nothing is remembered of an attempt until its files count.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, NamedTuple

from orbitmq.access.audit import caller_text, tell
from orbitmq.broker.refusal import Refusal
from orbitmq.clock import Clock
from orbitmq.errors import ProtocolError
from orbitmq.limits.far import FAR_LOAD_FILES_MAX, FAR_LOAD_NAME_CHARS_MAX, FAR_LOADED_FILES_MAX
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.far_load_bodies import FarLoadAction, FarLoadRequest, FarLoadState, FarLoadVerdict
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.store import MessageStore
from orbitmq.timing.far.far_timers import FarTimers
from orbitmq.timing.far.loads import LOADS, TOO_OLD, Load, WrittenFile, is_too_old, names_problem, probe_name, stem_of
from orbitmq.timing.far.tier import Tier, refuse_other_storage


class LoadPlace(NamedTuple):
    """What the broker gives every message: its address, its properties as stored, the slot that RocketMQ would give it."""

    store_host: bytes
    own: bytes
    precision_ms: int


class FarLoads:
    def __init__(
        self,
        far: FarTimers | None,
        place: LoadPlace,
        store: MessageStore,
        clock: Clock,
        *,
        unwritable: Callable[[], Refusal],
    ) -> None:
        self._far: Final = far
        self._place: Final = place
        self._store: Final = store
        self._clock: Final = clock
        self._unwritable: Final = unwritable

    def answer(self, command: Command, peer: Peer) -> Command | None:
        """FAR_LOAD."""
        try:
            request = FarLoadRequest.decode(command.body)
        except ProtocolError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from error
        if not 0 < len(request.job) <= FAR_LOAD_NAME_CHARS_MAX:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"the name of a job has 1 to {FAR_LOAD_NAME_CHARS_MAX} characters"
            )
        far = self._far
        if far is None:
            raise Refusal(ResponseCode.NO_PERMISSION, "this broker has no timer messages (timerWheelEnable=false)")
        if request.job in far.held.jobs:
            self._loaded(far, command, peer, request.job)
            return None
        if request.action is FarLoadAction.FIND:
            return _answered(command, FarLoadState(FarLoadVerdict.UNKNOWN))
        if not self._store.writable:
            raise self._unwritable()
        if request.action is FarLoadAction.OPEN:
            return self._open(far, command, peer, request.job)
        return self._load(far, command, peer, request)

    def _loaded(self, far: FarTimers, command: Command, peer: Peer, name: str) -> None:
        job = far.held.jobs[name]

        def saved(is_durable: bool) -> None:
            if is_durable:
                state = FarLoadState(
                    FarLoadVerdict.LOADED, attempt=job.attempt, split_ms=job.split_ms, files=job.files, rows=job.rows
                )
                peer.send(_answered(command, state))
            else:
                remark = "the files of the job count, but that is not durable yet: ask again"
                peer.send(response(command, ResponseCode.SERVICE_NOT_AVAILABLE, remark))

        self._store.save_durably(saved)

    def _open(self, far: FarTimers, command: Command, peer: Peer, job: str) -> Command | None:
        attempt, place = os.urandom(8).hex(), self._place
        state = FarLoadState(
            FarLoadVerdict.OPEN,
            attempt=attempt,
            created_ms=self._clock.now_ms(),
            split_ms=far.split_ms(),
            url=far.url,
            stem=f"{LOADS}/{stem_of(job, attempt)}",
            probe=probe_name(job, attempt),
            probe_text=os.urandom(16).hex(),
            store_host=place.store_host.hex(),
            own=place.own.decode(),
            precision_ms=place.precision_ms,
        )
        if far.keeper is None:
            reason = "it has nothing that could read them: pip install 'orbitmq[lake]' beside it"
            return _answered(command, _without_tier(state, reason))
        if not far.takes_messages:
            return _answered(command, _without_tier(state, "its far tier takes nothing in (timerFarEnable)"))
        if far.damaged_files or far.keeper.trouble is not None:
            # It may be away for long, and what is sent one by one waits in the log meanwhile.
            reason = far.keeper.trouble or f"it has damaged files: {', '.join(far.damaged_files)}"
            return response(command, ResponseCode.SERVICE_NOT_AVAILABLE, f"the far tier does not work: {reason}")

        mark = far.keeper.storage.sharing.mark

        def probe(tier: Tier) -> None:
            if mark:
                refuse_other_storage(tier.mark(""), mark)
            tier.open()
            tier.probe(state.probe, state.probe_text)

        def probed(result: BaseException | None) -> None:
            if result is None:
                peer.send(_answered(command, state))
            else:
                remark = f"the far tier does not work: {result}"
                peer.send(response(command, ResponseCode.SERVICE_NOT_AVAILABLE, remark))

        far.keeper.ask(probe, probed)
        return None

    def _load(self, far: FarTimers, command: Command, peer: Peer, request: FarLoadRequest) -> Command | None:
        files = [WrittenFile(file.name, file.size_bytes, file.crc, file.rows) for file in request.files]
        if problem := self._problem(far, request, files):
            return _refused(command, problem)
        asked = Load(request.job, request.attempt, request.created_ms, request.split_ms, files)
        load = far.load(asked)
        if load is asked:
            rows = sum(file.rows for file in files)
            said = f"FAR_LOAD job={load.job} attempt={load.attempt} files={len(files)} rows={rows}"
            tell(caller_text(peer), RequestCode.FAR_LOAD.name, said)
        if load is None:
            remark = "too many jobs have files checked already: ask again in a moment"
            return response(command, ResponseCode.SYSTEM_BUSY, remark)
        if load.problem:
            return _refused(command, load.problem)
        trouble = None if far.keeper is None else far.keeper.trouble
        state = FarLoadState(
            FarLoadVerdict.CHECKING, trouble or "", load.attempt, files=load.count, checked=len(load.checked)
        )
        return _answered(command, state)

    def _problem(self, far: FarTimers, request: FarLoadRequest, files: list[WrittenFile]) -> str:
        """Why these files cannot be loaded, whatever is in them."""
        if is_too_old(request.created_ms, self._clock.now_ms()):
            return TOO_OLD
        if problem := names_problem(request.job, request.attempt, files):
            return problem
        if len(files) > FAR_LOAD_FILES_MAX:
            return f"a job has at most {FAR_LOAD_FILES_MAX} files, these are {len(files)}: make larger ones, or several jobs"
        if len(files) + len(far.held.files.by_name) > FAR_LOADED_FILES_MAX:
            return f"the far tier has {len(far.held.files.by_name)} files, it takes at most {FAR_LOADED_FILES_MAX}: make larger ones"
        if files and far.keeper is None:
            return "this broker has no far tier any more"
        return ""


def _without_tier(state: FarLoadState, reason: str) -> FarLoadState:
    return FarLoadState(
        FarLoadVerdict.NO_TIER,
        reason=reason,
        attempt=state.attempt,
        created_ms=state.created_ms,
        split_ms=state.split_ms,
    )


def _answered(command: Command, state: FarLoadState) -> Command:
    return response(command, ResponseCode.SUCCESS, body=state.encode())


def _refused(command: Command, reason: str) -> Command:
    return _answered(command, FarLoadState(FarLoadVerdict.REFUSED, reason=reason))
