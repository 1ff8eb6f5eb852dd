"""Adding and replacing files: what the owner of the catalog decides.

A job has a name, an epoch that grows from one piece of work to the next, and attempts within an epoch. Opening it again makes
everything void that earlier attempts may still send. The time that splits near rows from far ones is fixed at the first opening of
an epoch and only rises afterwards: what an earlier attempt sent to the brokers, a later one does not put into a file.

Rules of this file
1. Pure: a request and the state in, an answer and changes out.
2. A repeated request has the answer of the first one, as far as what is remembered says it.
3. A refused request has changed nothing. What to do stands in the verdict and the reason.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from orbitmq.limits.far import (
    FAR_TABLE_FILES_MAX,
    FAR_TABLE_JOB_FILES_MAX,
    FAR_TABLE_JOB_MEMORY_MS,
    FAR_TABLE_JOBS_MAX,
    FAR_TABLE_NAME_LENGTH_MAX,
)
from orbitmq.protocol.far_table import (
    AddFiles,
    FilesChanged,
    JobOpened,
    OpenJob,
    ReplaceFiles,
    TableFile,
    TableVerdict,
)
from orbitmq.timing.far_table.catalog import Catalog, Decided, Job, Rules
from orbitmq.timing.far_table.changes import Added, Deleted, Opened, Replaced


def open_job(catalog: Catalog, request: OpenJob, now_ms: int, rules: Rules) -> Decided:
    """Answer: JobOpened."""
    job = catalog.jobs.get(request.job)
    if request.table != catalog.table:
        return Decided(JobOpened(TableVerdict.WRONG_TABLE, reason=_wrong_table(catalog, request.table)))
    if not request.job or len(request.job) > FAR_TABLE_NAME_LENGTH_MAX:
        return _unopened(
            catalog, TableVerdict.TOO_MANY, f"the name of a job has 1 to {FAR_TABLE_NAME_LENGTH_MAX} characters"
        )
    if job is not None and request.epoch < job.epoch:
        return _unopened(
            catalog, TableVerdict.STALE_EPOCH, f"job {request.job} is at epoch {job.epoch}, {request.epoch} is over"
        )
    if job is not None and request.epoch == job.epoch and job.is_done:
        return Decided(_opened(catalog, TableVerdict.REPEATED, job.attempt, job.split_ms, job.recalls_below, now_ms))
    forgets = ""
    if job is None and len(catalog.jobs) >= FAR_TABLE_JOBS_MAX:
        oldest, known = next(iter(catalog.jobs.items()))
        if now_ms - known.at_ms < FAR_TABLE_JOB_MEMORY_MS:
            return _unopened(
                catalog,
                TableVerdict.TOO_MANY,
                f"{FAR_TABLE_JOBS_MAX} jobs are remembered and the oldest, {oldest}, is younger than "
                f"{FAR_TABLE_JOB_MEMORY_MS // 86_400_000} days: use fewer names, with growing epochs",
            )
        forgets = oldest
    split_ms = catalog.split_ms(now_ms, rules)
    attempt = 1
    if job is not None:
        attempt = job.attempt + 1
        if job.epoch == request.epoch:
            split_ms = max(split_ms, job.split_ms)
    return Decided(
        _opened(catalog, TableVerdict.OK, attempt, split_ms, catalog.next_recall, now_ms),
        (Opened(request.job, request.epoch, attempt, split_ms, now_ms, forgets),),
    )


def add_files(catalog: Catalog, request: AddFiles, now_ms: int, present: Container[str]) -> Decided:
    """Answer: FilesChanged. `present`: which of the names the storage has, as it was asked after the request came."""
    job, refused = _job(catalog, request)
    if job is None or refused is not None:
        assert refused is not None
        return Decided(refused)
    split_ms = job.split_ms
    if (refused := _refused_files(catalog, request.files, present)) is not None:
        return Decided(refused)
    if catalog.frontier_ms is not None:
        early = [file.name for file in request.files if file.min_due_ms < catalog.frontier_ms]
        if early:
            reason = f"buckets before {catalog.frontier_ms} are closed; open the job again and write these files anew"
            return Decided(_refusal(catalog, TableVerdict.BEFORE_FRONTIER, reason, early))
    if early := [file.name for file in request.files if file.min_due_ms < split_ms]:
        reason = f"rows due before {split_ms}, the split of this attempt, go to the brokers and into no file"
        return Decided(_refusal(catalog, TableVerdict.BAD_FILE, reason, early))
    return Decided(_changed(catalog, TableVerdict.OK, request.attempt), (Added(request.job, request.files, now_ms),))


def replace_files(catalog: Catalog, request: ReplaceFiles, now_ms: int, present: Container[str]) -> Decided:
    """Answer: FilesChanged. Compare and set: every old file is listed, and nobody has replaced it."""
    job, refused = _job(catalog, request)
    if job is None or refused is not None:
        assert refused is not None
        return Decided(refused)
    if request.from_ms % catalog.bucket_ms:
        reason = f"{request.from_ms} is not the start of a bucket; they are {catalog.bucket_ms} ms apart"
        return Decided(_refusal(catalog, TableVerdict.BAD_FILE, reason))
    gone = [name for name in request.old_names if not is_replaceable(catalog, name)]
    if gone or not request.old_names or len(set(request.old_names)) < len(request.old_names):
        reason = "files to be replaced are not listed or are replaced already; read the list again"
        return Decided(_refusal(catalog, TableVerdict.FILE_GONE, reason, gone))
    if (refused := _refused_files(catalog, request.new_files, present)) is not None:
        return Decided(refused)
    olds = [catalog.files[name] for name in request.old_names]
    lowest = max(min(file.min_due_ms for file in olds), request.from_ms)
    highest = max(file.max_due_ms for file in olds)
    if strange := [each.name for each in request.new_files if each.min_due_ms < lowest or each.max_due_ms > highest]:
        reason = f"the rows that are replaced are due from {lowest} to {highest}, these files say otherwise"
        return Decided(_refusal(catalog, TableVerdict.BAD_FILE, reason, strange))
    change = Replaced(request.job, request.old_names, request.new_files, request.from_ms, now_ms)
    return Decided(_changed(catalog, TableVerdict.OK, request.attempt), (change,))


def is_replaceable(catalog: Catalog, name: str) -> bool:
    """Whether a file is listed, and to its end."""
    file = catalog.files.get(name)
    return file is not None and file.until_ms is None and catalog.is_open(file)


def deleted(catalog: Catalog, names: Iterable[str]) -> tuple[Deleted, ...]:
    """The change that says that the storage has removed these files. Only what is garbage durably may be removed."""
    known = [name for name in names if name in catalog.garbage]
    return (Deleted(known),) if known else ()


def _job(catalog: Catalog, request: AddFiles | ReplaceFiles) -> tuple[Job | None, FilesChanged | None]:
    """The job of a request, or the answer to it when it is stale or a repetition."""
    job = catalog.jobs.get(request.job)
    if request.table != catalog.table:
        return None, FilesChanged(TableVerdict.WRONG_TABLE, reason=_wrong_table(catalog, request.table))
    if job is None or request.epoch > job.epoch:
        reason = f"epoch {request.epoch} of job {request.job} is not open"
        return None, _refusal(catalog, TableVerdict.NOT_OPEN, reason)
    if request.epoch < job.epoch:
        reason = f"job {request.job} is at epoch {job.epoch}, {request.epoch} is over"
        return None, _refusal(catalog, TableVerdict.STALE_EPOCH, reason)
    if job.is_done and request.attempt == job.attempt:
        return None, _changed(catalog, TableVerdict.REPEATED, job.attempt)
    if request.attempt != job.attempt:
        reason = f"attempt {job.attempt} of job {request.job} has taken the place of attempt {request.attempt}"
        return None, _refusal(catalog, TableVerdict.STALE_ATTEMPT, reason)
    return job, None


def _refused_files(catalog: Catalog, files: list[TableFile], present: Container[str]) -> FilesChanged | None:
    names = [file.name for file in files]
    if len(files) > FAR_TABLE_JOB_FILES_MAX or len(catalog.files) + len(files) > FAR_TABLE_FILES_MAX:
        reason = (
            f"a request has at most {FAR_TABLE_JOB_FILES_MAX} files, the table {FAR_TABLE_FILES_MAX} "
            f"and now {len(catalog.files)}: write larger files, or compact the table"
        )
        return _refusal(catalog, TableVerdict.TOO_MANY, reason)
    bad = [
        file.name
        for file in files
        if not 0 < len(file.name) <= FAR_TABLE_NAME_LENGTH_MAX or file.rows < 1 or file.min_due_ms > file.max_due_ms
    ]
    if bad or len(set(names)) < len(names):
        reason = "a file has a name of its own, at least one row, and a lowest due time not above the highest"
        return _refusal(catalog, TableVerdict.BAD_FILE, reason, bad)
    if known := [name for name in names if catalog.is_known(name)]:
        return _refusal(
            catalog, TableVerdict.FILE_KNOWN, "these names were used before; every attempt takes new ones", known
        )
    if missing := [name for name in names if name not in present]:
        return _refusal(catalog, TableVerdict.BAD_FILE, "the storage does not have these files", missing)
    return None


def _wrong_table(catalog: Catalog, table: str) -> str:
    return f"this broker owns the catalog of far table {catalog.table}, not of {table}: compare table.json of the URL"


def _opened(
    catalog: Catalog, verdict: TableVerdict, attempt: int, split_ms: int, recalls_below: int, now_ms: int
) -> JobOpened:
    return JobOpened(
        verdict,
        catalog.version + (verdict is TableVerdict.OK),
        attempt=attempt,
        split_ms=split_ms,
        frontier_ms=catalog.frontier_ms or 0,
        bucket_ms=catalog.bucket_ms,
        now_ms=now_ms,
        recalls_below=recalls_below,
    )


def _unopened(catalog: Catalog, verdict: TableVerdict, reason: str) -> Decided:
    return Decided(JobOpened(verdict, catalog.version, reason, bucket_ms=catalog.bucket_ms))


def _changed(catalog: Catalog, verdict: TableVerdict, attempt: int) -> FilesChanged:
    version = catalog.version + (verdict is TableVerdict.OK)
    return FilesChanged(verdict, version, attempt=attempt, frontier_ms=catalog.frontier_ms or 0)


def _refusal(catalog: Catalog, verdict: TableVerdict, reason: str, names: Iterable[str] = ()) -> FilesChanged:
    return FilesChanged(verdict, catalog.version, reason, frontier_ms=catalog.frontier_ms or 0, names=list(names))
