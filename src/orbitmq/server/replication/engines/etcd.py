"""etcd as the engine of groups, version 3 of its protocol by the JSON gateway.

Rules of this file
1. The text under the key of a view is the truth; its `mod_revision` is the revision of `Held`.
2. What was held before is kept to compare with, and is never an answer.
3. A lease says who is present. A member whose lease was lost takes another one, and puts its place again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

from orbitmq.limits.engine import ENGINE_PAUSE_MS, ENGINE_PLACES_MAX, PRESENCE_RENEW_MS
from orbitmq.replication.settings import ReplicationSettings
from orbitmq.replication.view import View
from orbitmq.server.replication.engines import etcd_questions as questions
from orbitmq.server.replication.engines.etcd_answers import (
    ANOTHER,
    EtcdAnswered,
    EtcdAnswerError,
    EtcdLease,
    EtcdRange,
    EtcdStatus,
    EtcdTxn,
    KeptValue,
    one_value,
    read_answer,
    read_in_txn,
    read_streamed,
    values_of,
)
from orbitmq.server.replication.engines.etcd_gateway import EtcdGateway
from orbitmq.server.replication.engines.group_engine import EngineError, GroupEngine, Held, MemberPlace
from orbitmq.server.replication.engines.kept_text import (
    folder_key,
    place_key,
    place_text,
    places_key,
    read_place,
    read_view,
    view_key,
    view_text,
)

logger = logging.getLogger("orbitmq.replication")

Answer = TypeVar("Answer", bound=EtcdAnswered)


class _SeenView(NamedTuple):
    revision: int
    value: bytes
    view: View


class EtcdEngine(GroupEngine):
    def __init__(self, gateway: EtcdGateway) -> None:
        self._gateway = gateway
        self._belief = gateway.belief
        self._prefix = gateway.address.prefix
        self._seen: dict[str, _SeenView] = {}
        """The view of each group, as it was read last."""
        self._passed_over: set[str] = set()
        """Keys of places that could not be read; each is told once."""

    # --- the view -----------------------------------------------------------------------------------------------------

    async def read(self, group: str) -> Held:
        key = view_key(self._prefix, group)
        seen = self._belief.revision

        def read(status: int, body: bytes) -> Held:
            answer = read_answer(EtcdRange, status, body)
            self._believe(answer, seen)
            return self._held(group, one_value(key, answer.kvs, answer.header))

        return await self._gateway.ask(
            f"the view of {group} could not be read", questions.RANGE, questions.read_key(key), read
        )

    async def compare_and_set(self, group: str, revision: int, view: View) -> Held:
        key, value = view_key(self._prefix, group), view_text(group, view)
        before = self._seen.get(group)
        if revision and (before is None or before.revision != revision):
            held = await self.read(group)
            before = self._seen.get(group)
            if before is None or before.revision != revision:
                return held
        seen = self._belief.revision

        def read(status: int, body: bytes) -> Held:
            answer = read_answer(EtcdTxn, status, body)
            self._believe(answer, seen)
            kept = read_in_txn(key, answer)
            if answer.succeeded and (kept.value != value or kept.revision != int(answer.header.revision)):
                raise EtcdAnswerError("it says that it changed the view, and holds another one")
            return self._held(group, kept)

        body = questions.compare_and_put(key, revision, before.value if revision and before else b"", value)
        return await self._gateway.ask(f"the view of {group} could not be changed", questions.TXN, body, read)

    def _believe(self, answer: EtcdAnswered, seen: int) -> None:
        self._belief.same_cluster(answer.header)
        self._belief.not_older(answer.header, seen)

    def _held(self, group: str, kept: KeptValue) -> Held:
        """What is believed of a value. One that lies before what was seen is told all the same: a member that hears it stops."""
        if kept.value is None:
            self._seen.pop(group, None)
            return Held(None, 0)
        try:
            view = read_view(group, kept.value)
        except ValueError as error:
            raise EtcdAnswerError(
                f"what it holds as the view of {group} is none: {error}",
                remedy="see what else writes below this prefix, and that no member is older than the others",
            ) from error
        seen = self._seen.get(group)
        if seen is not None and kept.value != seen.value:
            is_older = view.lies_before(seen.view.epoch, seen.view.serial)
            if kept.revision == seen.revision or (kept.revision < seen.revision and not is_older):
                raise EtcdAnswerError(
                    f"the view of {group} was another one at revision {seen.revision}", remedy=ANOTHER
                )
        self._seen[group] = _SeenView(kept.revision, kept.value, view)
        return Held(view, kept.revision)

    # --- changes ------------------------------------------------------------------------------------------------------

    async def watch(self, group: str) -> AsyncIterator[None]:
        body = questions.watch_below(folder_key(self._prefix, group))
        while not self._gateway.is_closed:
            async with aclosing(self._gateway.changes(body)) as changes:
                async for _ in changes:
                    yield
            await asyncio.sleep(ENGINE_PAUSE_MS / 1_000)

    # --- presence -----------------------------------------------------------------------------------------------------

    async def keep_present(self, group: str, place: MemberPlace) -> None:
        lease, trouble = "", ""
        try:
            while not self._gateway.is_closed:
                try:
                    if not lease or not await self._renew(group, place, lease):
                        lease = await self._grant(group)
                        await self._put(group, place, lease)
                except EngineError as error:
                    if not trouble:
                        logger.warning("other members may not find this one, trying again: %s", error)
                    trouble = error.why
                else:
                    if trouble:
                        logger.info("other members find this one again: the engine knows where %s is", place.name)
                    trouble = ""
                await asyncio.sleep((ENGINE_PAUSE_MS if trouble else PRESENCE_RENEW_MS) / 1_000)
        finally:
            if lease and not self._gateway.is_closed:
                with suppress(EngineError):
                    await self._gateway.ask(
                        f"the presence of {place.name} could not be ended",
                        questions.REVOKE,
                        questions.of_lease(lease),
                        self._any(EtcdAnswered),
                    )

    async def places(self, group: str) -> tuple[MemberPlace, ...]:
        start = places_key(self._prefix, group)
        seen = self._belief.revision

        def read(status: int, body: bytes) -> tuple[MemberPlace, ...]:
            answer = read_answer(EtcdRange, status, body)
            self._believe(answer, seen)
            return tuple(
                place
                for key, kept in sorted(values_of(answer.kvs).items())
                if (place := self._place(group, start, key, kept)) is not None
            )

        return await self._gateway.ask(
            f"who is present in {group} could not be read", questions.RANGE, questions.read_below(start), read
        )

    def _place(self, group: str, start: str, key: str, kept: KeptValue) -> MemberPlace | None:
        """None where it cannot be read: one bad place does not hide the others."""
        try:
            return read_place(group, unquote(key.removeprefix(start)), kept.value or b"")
        except ValueError as error:
            if key not in self._passed_over and len(self._passed_over) < ENGINE_PLACES_MAX:
                self._passed_over.add(key)
                logger.warning("a place that the engine holds of a group is passed over: %s: %s", key, error)
            return None

    async def status(self) -> EtcdStatus:
        """What the endpoint that is asked says of itself, for people. Raises EngineError."""
        return await self._gateway.ask("its status could not be read", questions.STATUS, b"{}", self._any(EtcdStatus))

    async def aclose(self) -> None:
        self._gateway.close()

    async def _grant(self, group: str) -> str:
        lease = await self._gateway.ask(
            f"no lease for a member of {group}", questions.GRANT, questions.grant_lease(), self._any(EtcdLease)
        )
        return lease.id

    async def _renew(self, group: str, place: MemberPlace, lease: str) -> bool:
        """Whether the engine still knows of the lease, and of a place under its key."""

        def read(status: int, body: bytes) -> EtcdLease:
            answer = read_streamed(EtcdLease, status, body)
            self._belief.same_cluster(answer.header)
            return answer

        what = f"the presence of {place.name} could not be renewed"
        if not (await self._gateway.ask(what, questions.KEEP_ALIVE, questions.of_lease(lease), read)).lives:
            return False
        key = place_key(self._prefix, group, place.name)
        return bool((await self._gateway.ask(what, questions.RANGE, questions.read_key(key), self._any(EtcdRange))).kvs)

    async def _put(self, group: str, place: MemberPlace, lease: str) -> None:
        body = questions.put_under_lease(place_key(self._prefix, group, place.name), place_text(group, place), lease)
        what = f"the engine could not be told where {place.name} is"
        await self._gateway.ask(what, questions.PUT, body, self._any(EtcdAnswered))

    def _any(self, kind: type[Answer]) -> Callable[[int, bytes], Answer]:
        """Reads an answer whose revision does not count."""

        def read(status: int, body: bytes) -> Answer:
            answer = read_answer(kind, status, body)
            self._belief.same_cluster(answer.header)
            return answer

        return read


def opened_engine(settings: ReplicationSettings) -> GroupEngine | None:
    """The engine that the settings name; it connects when it is asked. None where they name none."""
    if settings.engine is None:
        return None
    return EtcdEngine(EtcdGateway(settings.engine, settings.engine_password_file, settings.engine_question_ms))
