"""Bugs to plant into catalog, promotion and shells: a simulation that does not catch them proves nothing.

Each is a context manager that breaks one rule while it is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import msgspec
from tests.simulation.far_table.brokers import Owner

from orbitmq.protocol.far_table import BeginShare, FilesChanged, ShareChanged, TableVerdict
from orbitmq.timing.far_table import jobs, promotion, shares
from orbitmq.timing.far_table.catalog import Catalog, Job, Rules, Share
from orbitmq.timing.far_table.changes import Released, Replaced
from orbitmq.timing.far_table.promotion import Batch, Promoter

Plant = Callable[[], AbstractContextManager[Any]]


@contextmanager
def epochs_not_compared() -> Iterator[None]:
    """A share is begun by whoever asks, also by a broker whose claim went to another one."""
    correct = shares._share

    def found(catalog: Catalog, request: BeginShare) -> tuple[Share | None, ShareChanged | None]:
        share, refused = correct(catalog, request)
        if refused is not None and refused.verdict is TableVerdict.NOT_YOURS:
            return catalog.buckets[request.bucket_ms].shares[request.first], None
        return share, refused

    with mock.patch.object(shares, "_share", found):
        yield


@contextmanager
def leases_of_begun_shares_run_out() -> Iterator[None]:
    """A share is free again after its lease, begun or not."""
    correct = shares._next_share

    def next_share(catalog: Catalog, *rest: Any) -> Any:
        begun = [share for _, share in catalog.shares() if share.is_begun]
        for share in begun:
            share.is_begun = False
        try:
            return correct(catalog, *rest)
        finally:
            for share in begun:
                share.is_begun = True

    with mock.patch.object(shares, "_next_share", next_share):
        yield


@contextmanager
def attempts_not_compared() -> Iterator[None]:
    """What an earlier attempt of a job sends late is taken."""
    correct = jobs._job

    def job_of(catalog: Catalog, request: Any) -> tuple[Job | None, FilesChanged | None]:
        job, refused = correct(catalog, request)
        if refused is not None and refused.verdict is TableVerdict.STALE_ATTEMPT:
            return catalog.jobs[request.job], None
        return job, refused

    with mock.patch.object(jobs, "_job", job_of):
        yield


@contextmanager
def split_follows_the_clock() -> Iterator[None]:
    """Opening a job again fixes a new split, which may lie before the one by which rows were sent."""
    correct = jobs.open_job

    def open_job(catalog: Catalog, request: Any, now_ms: int, rules: Rules) -> Any:
        job = catalog.jobs.get(request.job)
        if job is None or job.is_done:
            return correct(catalog, request, now_ms, rules)
        catalog.jobs[request.job] = msgspec.structs.replace(job, split_ms=0)
        try:
            return correct(catalog, request, now_ms, rules)
        finally:
            catalog.jobs[request.job] = job

    with mock.patch.object(jobs, "open_job", open_job):
        yield


@contextmanager
def closed_buckets_keep_no_files() -> Iterator[None]:
    """What is not open is garbage."""

    def drop(self: Catalog, name: str) -> None:
        if name in self.files and not self.is_open(self.files[name]):
            del self.files[name]
            self.garbage[name] = None

    with mock.patch.object(Catalog, "_drop_unless_needed", drop):
        yield


@contextmanager
def replaced_before_the_frontier() -> Iterator[None]:
    """New files take the place of old ones from where the compaction began, whatever was closed meanwhile."""
    correct = Catalog._replaced

    def replaced(self: Catalog, change: Replaced) -> None:
        frontier_ms, self.frontier_ms = self.frontier_ms, None
        try:
            correct(self, change)
        finally:
            self.frontier_ms = frontier_ms

    with mock.patch.object(Catalog, "_replaced", replaced):
        yield


@contextmanager
def replaced_without_comparing() -> Iterator[None]:
    """A file may be replaced twice."""

    def is_replaceable(catalog: Catalog, name: str) -> bool:
        return name in catalog.files

    with mock.patch.object(jobs, "is_replaceable", is_replaceable):
        yield


@contextmanager
def replaced_files_forget_recalls() -> Iterator[None]:
    """A compaction is said to have applied the recalls that came while it ran."""
    correct = Catalog._replaced

    def replaced(self: Catalog, change: Replaced) -> None:
        self.jobs[change.job].recalls_below = self.next_recall
        correct(self, change)

    with mock.patch.object(Catalog, "_replaced", replaced):
        yield


@contextmanager
def recalled_after_the_beginning() -> Iterator[None]:
    """A recall is accepted for rows of a bucket that is begun."""
    with mock.patch.object(Catalog, "holders", return_value=None):
        yield


@contextmanager
def stored_rows_reported_early() -> Iterator[None]:
    """Rows are reported when they are appended."""
    correct = Promoter.rows_read

    def rows_read(self: Promoter, *arguments: Any, **options: Any) -> Batch | None:
        batch = correct(self, *arguments, **options)
        if batch is not None:
            self.durable(batch)
        return batch

    with mock.patch.object(Promoter, "rows_read", rows_read):
        yield


@contextmanager
def log_not_asked() -> Iterator[None]:
    """After a start promotion goes on behind what was reported, not behind what the log has."""
    with mock.patch.object(promotion.Promoter, "seen", return_value=None):
        yield


@contextmanager
def old_answers_believed() -> Iterator[None]:
    """A late list of shares brings back one that is finished."""
    with mock.patch.object(Promoter, "_is_old", return_value=False):
        yield


@contextmanager
def released_from_what_was_stored() -> Iterator[None]:
    """An operator gives others all that a broker did not report, also what it was allowed to store."""
    correct = Catalog._released

    def released(self: Catalog, change: Released) -> None:
        share = self.buckets[change.bucket_ms].shares[change.first]
        share.allowed = max(share.stored, share.first + 1)
        correct(self, change)

    with mock.patch.object(Catalog, "_released", released):
        yield


@contextmanager
def answered_before_durable() -> Iterator[None]:
    """The owner answers when it has decided."""
    correct = Owner._decide

    def decide(self: Owner, decided: Any) -> int:
        correct(self, decided)
        return 0

    with mock.patch.object(Owner, "_decide", decide):
        yield


@contextmanager
def closed_ahead_of_time() -> Iterator[None]:
    """The horizon reaches a bucket further than it is said to."""
    correct = shares.claim_share

    def claim(catalog: Catalog, leases: Any, request: Any, now_ms: int, steady_ms: int, rules: Rules) -> Any:
        return correct(catalog, leases, request, now_ms + 2 * catalog.bucket_ms, steady_ms, rules)

    with mock.patch.object(shares, "claim_share", claim):
        yield


@contextmanager
def snapshots_without_recalls() -> Iterator[None]:
    """A start of the owner forgets recalls that are only in the snapshot."""
    correct = Catalog.from_bytes

    def read(content: bytes) -> Catalog:
        catalog = correct(content)
        catalog.recalls.clear()
        return catalog

    with mock.patch.object(Catalog, "from_bytes", read):
        yield


@contextmanager
def gone_recalls_known_by_id_alone() -> Iterator[None]:
    """Who asks by key for a row that was recalled and has left its files hears of nothing."""
    with mock.patch.object(Catalog, "recalled_with", return_value=[]):
        yield


PLANTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        epochs_not_compared,
        leases_of_begun_shares_run_out,
        attempts_not_compared,
        split_follows_the_clock,
        closed_buckets_keep_no_files,
        replaced_before_the_frontier,
        replaced_without_comparing,
        replaced_files_forget_recalls,
        recalled_after_the_beginning,
        stored_rows_reported_early,
        log_not_asked,
        old_answers_believed,
        released_from_what_was_stored,
        answered_before_durable,
        closed_ahead_of_time,
        snapshots_without_recalls,
        gone_recalls_known_by_id_alone,
    )
}
