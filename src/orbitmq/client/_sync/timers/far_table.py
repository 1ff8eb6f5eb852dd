"""The far table of the cluster: what its catalog says, adding and replacing files, recalling rows.

One broker owns the catalog; any broker says which one. A program that writes files opens a job, writes them below the table's URL
under new names, and adds them. A verdict of the owner is part of its answer, for the program to act upon; only trouble on
the way is an error.

Rules of this file
1. Every request may be repeated, so it is: after a lost connection, and while the owner is being started, until the patience ends.
2. Requests carry the id of the table as its owner said it first: another table behind the same name is refused, not written to.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/timers/far_table.py: change that file and run `make generate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from orbitmq.client._async.timers import far_table as source
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.protocol import far_table as wire


class FarTable:
    """The far table of the cluster: timer messages in files on shared storage. See `Client.far_table`."""

    def __init__(self, twin: source.FarTable, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.FarTable = twin

    def status(self) -> wire.TableStatus:
        """Which table there is and what it holds; the first shares that brokers have taken and not finished. `NotFoundError`
        when no broker has a far table.
        """
        return self._loop.run(self._twin.status())

    def files(self, *, start: datetime | int | None = None, end: datetime | int | None = None) -> list[wire.ListedFile]:
        """Every file with rows that no broker has taken yet, due from `start` to before `end`, by name."""
        return self._loop.run(self._twin.files(start=start, end=end))

    def recalls(self, from_ms: int, until_ms: int) -> list[wire.Recall]:
        """The recalled rows due from `from_ms` to before `until_ms` that are in files still."""
        return self._loop.run(self._twin.recalls(from_ms, until_ms))

    def open_job(self, job: str, epoch: int = 0) -> wire.JobOpened:
        """Begin, or begin again, an epoch of a job. Rows due before `split_ms` of the answer are to be sent to the brokers, the
        others belong into files.
        """
        return self._loop.run(self._twin.open_job(job, epoch))

    def add(self, job: str, epoch: int, attempt: int, files: Sequence[wire.TableFile]) -> wire.FilesChanged:
        """List files, all or none, and finish the epoch. With the verdict OK or REPEATED their rows are accepted, as durably as the
        owner's flush mode says.
        """
        return self._loop.run(self._twin.add(job, epoch, attempt, files))

    def replace(
        self,
        job: str,
        epoch: int,
        attempt: int,
        old_names: Sequence[str],
        new_files: Sequence[wire.TableFile],
        from_ms: int,
    ) -> wire.FilesChanged:
        """Let new files count instead of old ones, for rows due at `from_ms`, the start of a bucket, or later."""
        return self._loop.run(self._twin.replace(job, epoch, attempt, old_names, new_files, from_ms))

    def recall(
        self, topic: str, *, message_id: str | None = None, key: str | None = None, due: datetime | int | None = None
    ) -> tuple[wire.RecalledRow, ...]:
        """Do not deliver the rows of a topic with this message id, or with this key. Each row's verdict is certain: RECALLED
        and ALREADY_RECALLED rows are not delivered; HANDED_OVER ones are with one of its brokers, recall them there
        (`Client.timers`).

        due: when it is due, where that is known; without it every file is looked into, which takes long in a large table.
        """
        return self._loop.run(self._twin.recall(topic, message_id=message_id, key=key, due=due))

    def find(
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
        return self._loop.run(
            self._twin.find(
                topic=topic,
                message_id=message_id,
                key=key,
                key_prefix=key_prefix,
                start=start,
                end=end,
                is_waiting=is_waiting,
                page_count=page_count,
                cursor=cursor,
            )
        )

    def release(self, broker: str, bucket_ms: int, first: int, *, give_up: bool = False) -> wire.ShareReleased:
        """Let other brokers store the rows that a broker which is away was not allowed yet. With `give_up` the rows it was allowed
        are not waited for any more: for a broker that never comes back.
        """
        return self._loop.run(self._twin.release(broker, bucket_ms, first, give_up=give_up))
