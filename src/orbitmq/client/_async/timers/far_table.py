"""The far table of the cluster: what its catalog says, adding and replacing files, recalling rows.

One broker owns the catalog; any broker says which one. A program that writes files opens a job, writes them below the table's URL
under new names, and adds them. A verdict of the owner is part of its answer, for the program to act upon; only trouble on
the way is an error.

Rules of this file
1. Every request may be repeated, so it is: after a lost connection, and while the owner is being started, until the patience ends.
2. Requests carry the id of the table as its owner said it first: another table behind the same name is refused, not written to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar

from orbitmq.client.due_time import instant_ms
from orbitmq.errors import ClientError, ConfigurationError, NotFoundError, RemoteError
from orbitmq.limits.client import FAR_TABLE_PATIENCE_MS, FAR_TABLE_RETRY_MS
from orbitmq.protocol import far_table as wire
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from orbitmq.client._async.administration.admin_calls import Broker
    from orbitmq.client._async.parts import Context

A = TypeVar("A", bound=wire.TableAnswer)

_ONLY_HERE: Final = "orbitmq's broker has it: set farTableUrl and farTableOwner"
_LATER: Final = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)
"""The owner cannot answer now, and will be able to."""


class FarTable:
    """The far table of the cluster: timer messages in files on shared storage. See `Client.far_table`."""

    def __init__(self, client: Context) -> None:
        self._client = client
        self._owner: Broker | None = None
        self._table = ""

    # --- looking

    async def status(self) -> wire.TableStatus:
        """Which table there is and what it holds; the first shares that brokers have taken and not finished. `NotFoundError`
        when no broker has a far table."""
        status = await self._ask(RequestCode.FAR_TABLE_STATUS, wire.StatusQuery(), wire.TableStatus)
        self._table = self._table or status.table
        return status

    async def files(
        self, *, start: datetime | int | None = None, end: datetime | int | None = None
    ) -> list[wire.ListedFile]:
        """Every file with rows that no broker has taken yet, due from `start` to before `end`, by name."""
        query = wire.FilesQuery(await self._table_id(), from_ms=_ms("start", start), until_ms=_ms("end", end))
        found: list[wire.ListedFile] = []
        while True:
            page = await self._ask(RequestCode.FAR_TABLE_FILES, query, wire.FilesPage)
            _check_table(page)
            found += page.files
            if page.next_after is None:
                return found
            query.after_name = page.next_after

    async def recalls(self, from_ms: int, until_ms: int) -> list[wire.Recall]:
        """The recalled rows due from `from_ms` to before `until_ms` that are in files still."""
        query = wire.RecallsQuery(await self._table_id(), from_ms=from_ms, until_ms=until_ms)
        found: list[wire.Recall] = []
        while True:
            page = await self._ask(RequestCode.FAR_TABLE_RECALLS, query, wire.RecallsPage)
            _check_table(page)
            found += page.recalls
            if page.next_after is None:
                return found
            query.after_number = page.next_after

    # --- jobs

    async def open_job(self, job: str, epoch: int = 0) -> wire.JobOpened:
        """Begin, or begin again, an epoch of a job. Rows due before `split_ms` of the answer are to be sent to the brokers, the
        others belong into files."""
        request = wire.OpenJob(await self._table_id(), job, epoch)
        return await self._ask(RequestCode.FAR_TABLE_OPEN, request, wire.JobOpened)

    async def add(self, job: str, epoch: int, attempt: int, files: Sequence[wire.TableFile]) -> wire.FilesChanged:
        """List files, all or none, and finish the epoch. With the verdict OK or REPEATED their rows are accepted, as durably as the
        owner's flush mode says."""
        request = wire.AddFiles(await self._table_id(), job, epoch, attempt, list(files))
        return await self._ask(RequestCode.FAR_TABLE_ADD, request, wire.FilesChanged)

    async def replace(
        self,
        job: str,
        epoch: int,
        attempt: int,
        old_names: Sequence[str],
        new_files: Sequence[wire.TableFile],
        from_ms: int,
    ) -> wire.FilesChanged:
        """Let new files count instead of old ones, for rows due at `from_ms`, the start of a bucket, or later."""
        table = await self._table_id()
        request = wire.ReplaceFiles(table, job, epoch, attempt, list(old_names), list(new_files), from_ms)
        return await self._ask(RequestCode.FAR_TABLE_REPLACE, request, wire.FilesChanged)

    # --- messages

    async def recall(
        self,
        topic: str,
        *,
        message_id: str | None = None,
        key: str | None = None,
        due: datetime | int | None = None,
    ) -> tuple[wire.RecalledRow, ...]:
        """Do not deliver the rows of a topic with this message id, or with this key. Each row's verdict is certain: RECALLED
        and ALREADY_RECALLED rows are not delivered; HANDED_OVER ones are with one of its brokers, recall them there
        (`Client.timers`).

        due: when it is due, where that is known; without it every file is looked into, which takes long in a large table.
        """
        if (message_id is None) == (key is None):
            raise ConfigurationError("give a message id or a key, one of them")
        request = wire.RecallRows(await self._table_id(), topic, message_id=message_id, key=key, due_ms=_ms("due", due))
        answer = await self._ask(RequestCode.FAR_TABLE_RECALL, request, wire.RowsRecalled)
        _check_table(answer)
        _check_extent(answer)
        return tuple(answer.rows)

    async def find(
        self,
        *,
        topic: str | None = None,
        message_id: str | None = None,
        key: str | None = None,
        key_prefix: str | None = None,
        start: datetime | int | None = None,
        end: datetime | int | None = None,
        is_waiting: bool = False,
        page_count: int = 100,
        cursor: str | None = None,
    ) -> wire.RowsFound:
        """A page of rows due from `start` to before `end`, by due time; the next one is asked for with its `cursor`, None on the last.

        message_id, key, key_prefix: with a topic, one of them. is_waiting: only rows that are in files and will be delivered; otherwise
        also what is known of recalled ones and of those that brokers have. A page may have fewer rows than asked for, or none: what is
        read for one is bounded. Cost: the files of that time are read without their bodies.
        """
        request = wire.FindRows(
            await self._table_id(),
            topic=topic,
            message_id=message_id,
            key=key,
            key_prefix=key_prefix,
            from_ms=_ms("start", start),
            until_ms=_ms("end", end),
            is_waiting=is_waiting,
            limit=page_count,
            cursor=cursor,
        )
        answer = await self._ask(RequestCode.FAR_TABLE_FIND, request, wire.RowsFound)
        _check_table(answer)
        _check_extent(answer)
        return answer

    # --- shares

    async def release(self, broker: str, bucket_ms: int, first: int, *, give_up: bool = False) -> wire.ShareReleased:
        """Let other brokers store the rows that a broker which is away was not allowed yet. With `give_up` the rows it was allowed
        are not waited for any more: for a broker that never comes back."""
        request = wire.ReleaseShare(await self._table_id(), broker, bucket_ms, first, give_up)
        return await self._ask(RequestCode.FAR_TABLE_RELEASE, request, wire.ShareReleased)

    # --- inside

    async def _table_id(self) -> str:
        return self._table or (await self.status()).table

    async def _ask(self, code: RequestCode, request: wire.TableRequest | wire.StatusQuery, kind: type[A]) -> A:
        doing = f"asking about the far table ({code.name})"
        left_ms = FAR_TABLE_PATIENCE_MS
        while True:
            try:
                owner = self._owner = self._owner or await self._find_owner(doing)
                answer = await self._client.network.request(
                    owner.address,
                    code,
                    {},
                    request.encode(),
                    timeout_ms=self._client.options.admin_timeout_ms,
                    doing=doing,
                )
                return kind.decode(answer.body)
            except NotFoundError:
                raise
            except ClientError as error:
                is_final = isinstance(error, RemoteError) and error.code not in (*_LATER, ResponseCode.NOT_TABLE_OWNER)
                if is_final or left_ms <= 0:
                    raise
                self._owner = None
            await asyncio.sleep(FAR_TABLE_RETRY_MS / 1_000)
            left_ms -= FAR_TABLE_RETRY_MS

    async def _find_owner(self, doing: str) -> Broker:
        """`NotFoundError` when no broker has a far table; ClientError when those that may have one cannot be asked."""
        from orbitmq.client._async.administration.admin_calls import AdminCalls

        masters = await AdminCalls(self._client).masters()
        trouble: ClientError | None = None
        for broker in masters:
            try:
                answer = await self._client.network.request(
                    broker.address,
                    RequestCode.FAR_TABLE_STATUS,
                    {},
                    wire.StatusQuery().encode(),
                    timeout_ms=self._client.options.admin_timeout_ms,
                    doing=doing,
                    accept=(
                        ResponseCode.SUCCESS,
                        ResponseCode.NOT_TABLE_OWNER,
                        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                        *_LATER,
                    ),
                )
            except ClientError as error:
                trouble = error
                continue
            if answer.code in (ResponseCode.SUCCESS, *_LATER):
                return broker
            name = (answer.fields or {}).get("owner")
            if answer.code == ResponseCode.NOT_TABLE_OWNER and name:
                owner = next((master for master in masters if master.name == name), None)
                if owner is not None:
                    return owner
                trouble = ClientError(
                    f"broker {name}, which owns the far table, is not registered", remedy="start it, or wait for it"
                )
        raise trouble or NotFoundError("no broker of this cluster has a far table", remedy=_ONLY_HERE)


def _ms(name: str, at: datetime | int | None) -> int | None:
    return None if at is None else instant_ms(name, at)


def _check_extent(answer: wire.TableAnswer) -> None:
    """Raises ClientError when the owner did not look, because it would take too long."""
    if answer.verdict is wire.TableVerdict.TOO_MANY:
        raise ClientError(
            f"the far table was not looked through: {answer.reason}",
            remedy="name a message by its id and due time: mq.far_table.recall(topic, message_id=..., due=...), or list a short time",
        )


def _check_table(answer: wire.TableAnswer) -> None:
    """Raises ClientError when the owner keeps another table than it did."""
    if answer.verdict is wire.TableVerdict.WRONG_TABLE:
        raise ClientError(
            f"the far table of the cluster has changed: {answer.reason or answer.verdict.value}",
            remedy="connect again, and look at farTableUrl of its brokers",
        )
