"""Requests about the far table: far-away timers of a whole cluster in files on shared storage, and the catalog that owns them.

One broker owns the catalog. Whoever writes files opens a *job*, writes files under new names, and adds them; the catalog lists
them or refuses them as a whole. Time is cut into *buckets*. A broker claims a *share* of a bucket (a run of its rows, nearly
always all of them), begins it, stores its rows in its own log, and says how far it came.

Rules of this file
1. Instants are wall-clock milliseconds since 1970. What is absent is None, and absent on the wire.
2. Every request may be repeated after a lost answer: it is answered OK or REPEATED and has one effect.
3. Refusals that a program acts upon are verdicts with a reason in plain words; everything else is an error of the protocol.
4. A name of a file is used once. Whoever writes again, after a refusal or a crash, takes new names.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from orbitmq.protocol.remoting.bodies.json_body import Count, Int64, JsonBody


class TableVerdict(StrEnum):
    """What became of a request about the far table."""

    OK = "ok"
    REPEATED = "repeated"
    """This had been done already, by an earlier copy of the request."""
    BEFORE_FRONTIER = "before_frontier"
    """A file has rows of buckets that are closed. Open the job again, send what is due before its `split_ms` to the brokers, and
    write the files anew."""
    STALE_EPOCH = "stale_epoch"
    """The job goes on elsewhere with a higher epoch."""
    STALE_ATTEMPT = "stale_attempt"
    """The job was opened again since, by another process or this one."""
    NOT_OPEN = "not_open"
    """The job was not opened, or so long ago that it is not known any more."""
    FILE_KNOWN = "file_known"
    """A new file has a name that was used before."""
    FILE_GONE = "file_gone"
    """A file is not listed, or is being replaced already: somebody else was faster."""
    BAD_FILE = "bad_file"
    """What is said of a file cannot be, or the storage does not have it."""
    TOO_MANY = "too_many"
    """The catalog has reached one of its bounds."""
    NOT_YOURS = "not_yours"
    """The share belongs to another broker, or is claimed under a higher epoch."""
    GONE = "gone"
    """The share is finished, or nobody claimed it."""
    WRONG_TABLE = "wrong_table"
    """The owner keeps the catalog of another table."""


class TableRequest(JsonBody):
    """What all requests have: the id of the table, as `table.json` says it."""

    table: str


class TableAnswer(JsonBody):
    """What all answers have. `version` counts the changes of the catalog; a later answer never has a lower one, and a process
    ignores answers that are older than one it acted upon."""

    verdict: TableVerdict
    version: Int64 = 0
    reason: str = ""


class TableFile(JsonBody):
    """One new file: its name relative to the table's URL, and what its rows are. Sorted by due time; at least one row."""

    name: str
    rows: Count
    size_bytes: Int64
    min_due_ms: Int64
    max_due_ms: Int64


class ListedFile(TableFile):
    """A file that the catalog knows.

    Its rows due from `from_ms` to before `until_ms` count, the others are in other files or were handed over; None: no such end.
    `recalls_below`: rows recalled under lower numbers are not in it.
    """

    from_ms: Int64 | None = None
    until_ms: Int64 | None = None
    recalls_below: Int64 = 0


# --- jobs: adding and replacing files ------------------------------------------------------------------------------------


class OpenJob(TableRequest):
    """Body of FAR_TABLE_OPEN: begin, or begin again, epoch `epoch` of a job. A higher epoch shuts out the lower ones."""

    job: str
    epoch: Int64 = 0


class JobOpened(TableAnswer):
    """Answer to FAR_TABLE_OPEN.

    OK: write files under `attempt`. REPEATED: the epoch was finished, by attempt `attempt`; only rows due before
    `split_ms` may still have to be sent to the brokers, under keys that make repeats harmless.
    `split_ms` never falls within an epoch: rows due before it go to the brokers, the others into files. For a job that replaces
    files it has no meaning. `recalls_below`: a compaction of this attempt has to leave out rows recalled under lower numbers, and
    may leave out others.
    """

    attempt: Int64 = 0
    split_ms: Int64 = 0
    frontier_ms: Int64 = 0
    bucket_ms: Int64 = 0
    now_ms: Int64 = 0
    recalls_below: Int64 = 0


class AddFiles(TableRequest):
    """Body of FAR_TABLE_ADD: list these files, all or none, and finish the epoch of the job. It may be without files."""

    job: str
    epoch: Int64
    attempt: Int64
    files: list[TableFile]


class ReplaceFiles(TableRequest):
    """Body of FAR_TABLE_REPLACE: from `from_ms`, the start of a bucket, the new files count instead of the old ones.

    The new files hold every row of the old ones that counts, is due at `from_ms` or later, and is not recalled; no other.
    Buckets that were closed meanwhile keep the old files; so do open ones before `from_ms`.
    """

    job: str
    epoch: Int64
    attempt: Int64
    old_names: list[str]
    new_files: list[TableFile]
    from_ms: Int64


class FilesChanged(TableAnswer):
    """Answer to FAR_TABLE_ADD and FAR_TABLE_REPLACE. `attempt` is the one whose files are listed: the files of any other are
    nobody's and may be removed. `names` are the files in question of a refusal."""

    attempt: Int64 = 0
    frontier_ms: Int64 = 0
    names: list[str] = msgspec.field(default_factory=list)


# --- shares: promotion ------------------------------------------------------------------------------------------------


class ClaimShare(TableRequest):
    """Body of FAR_TABLE_CLAIM, sent again and again by every broker that promotes: list my shares, and with `wants` give me one
    more.

    `store` is the id of the broker's store: a broker that lost its disk is another one. With `keeps` false, what was claimed and
    not begun is not listed, and left to others when its lease runs out.
    """

    broker: str
    store: str
    wants: bool
    keeps: bool


class ShareView(JsonBody):
    """One share: rows `first` to before `end` of a bucket, in the order of due time, file name, row in the file.

    Every row of a file has its place in that order whether it was recalled or not; rows outside [from_ms, until_ms) of their
    file have none. `end` None: to the last row. Begun, rows up to before `allowed` may be stored; the owner knows that those before
    `stored` are.
    """

    bucket_ms: Int64
    first: Int64
    epoch: Int64
    files: list[ListedFile]
    end: Int64 | None = None
    is_begun: bool = False
    allowed: Int64 = 0
    stored: Int64 = 0
    recall_count: Count = 0


class SharesClaimed(TableAnswer):
    """Answer to FAR_TABLE_CLAIM: every share that is this broker's, earliest first. `pause_ms`: when to ask again at the latest."""

    shares: list[ShareView] = msgspec.field(default_factory=list)
    frontier_ms: Int64 = 0
    bucket_ms: Int64 = 0
    pause_ms: Int64 = 0


class BeginShare(TableRequest):
    """Body of FAR_TABLE_BEGIN, before the first row is stored. From then on the share belongs to this broker and store."""

    broker: str
    store: str
    bucket_ms: Int64
    first: Int64
    epoch: Int64


class AdvanceShare(BeginShare):
    """Body of FAR_TABLE_ADVANCE: every row before `stored` is durable in this broker's log, or recalled.

    With `is_done` there are no further rows in the share. The answer allows further rows otherwise.
    """

    stored: Int64
    is_done: bool = False


class ShareChanged(TableAnswer):
    """Answer to FAR_TABLE_BEGIN and FAR_TABLE_ADVANCE. `recall_count` rows of the bucket are recalled, and stay the same: ask for
    them with FAR_TABLE_RECALLS before the first row is stored."""

    allowed: Int64 = 0
    end: Int64 | None = None
    recall_count: Count = 0


class ReleaseShare(TableRequest):
    """Body of FAR_TABLE_RELEASE, for an operator whose broker will be away for long.

    Rows that this broker was not allowed yet go to others. Rows before `allowed` stay its own, because it may have stored them:
    nobody else ever stores them. With `give_up` they are not waited for any more: for a broker that never comes back.
    """

    broker: str
    bucket_ms: Int64
    first: Int64
    give_up: bool = False


class ShareReleased(TableAnswer):
    """Answer to FAR_TABLE_RELEASE: of rows `stored` to before `allowed` nobody but the broker knows whether they are in its log."""

    stored: Int64 = 0
    allowed: Int64 = 0


# --- recalls ----------------------------------------------------------------------------------------------------------


class RowVerdict(StrEnum):
    """What became of the recall of one row."""

    RECALLED = "recalled"
    """It will not be delivered."""
    ALREADY_RECALLED = "already_recalled"
    HANDED_OVER = "handed_over"
    """Its bucket is begun, so it is, if there is such a row, with one of `brokers`: recall it there."""
    NOT_FOUND = "not_found"
    TOO_MANY = "too_many"
    """The catalog holds as many recalls as it can until files are compacted. Nothing was changed."""


class RecallRows(TableRequest):
    """Body of FAR_TABLE_RECALL: rows of a topic with this message id or this key. `due_ms`, where it is known, saves looking
    into every file."""

    topic: str
    message_id: str | None = None
    key: str | None = None
    due_ms: Int64 | None = None


class RecalledRow(JsonBody):
    """`message_id` is the unique key of the row, `keys` are its keys as far as they are known."""

    verdict: RowVerdict
    message_id: str
    due_ms: Int64 | None = None
    brokers: list[str] = msgspec.field(default_factory=list)
    keys: str = ""


class RowsRecalled(TableAnswer):
    """Answer to FAR_TABLE_RECALL, at least one row. TOO_MANY: nothing was recalled, because too many rows would have to be looked
    through, or too many are meant."""

    rows: list[RecalledRow] = msgspec.field(default_factory=list)


class Recall(JsonBody):
    """A row that will not be delivered, and the number of its recall."""

    due_ms: Int64
    topic: str
    message_id: str
    number: Int64
    keys: str = ""


class RecallsQuery(TableRequest):
    """Body of FAR_TABLE_RECALLS: the recalled rows due from `from_ms` to before `until_ms`, in pages.

    A broker that begun a share asks with `bucket_ms` alone, and is answered GONE when the bucket is finished.
    """

    from_ms: Int64 | None = None
    until_ms: Int64 | None = None
    bucket_ms: Int64 | None = None
    after_number: Int64 = -1


class RecallsPage(TableAnswer):
    """Answer to FAR_TABLE_RECALLS, by rising number. The next page is asked for with `next_after`; None on the last one."""

    recalls: list[Recall] = msgspec.field(default_factory=list)
    next_after: Int64 | None = None


# --- rows ---------------------------------------------------------------------------------------------------------------


class RowStanding(StrEnum):
    """Where a row is."""

    PENDING = "pending"
    """In a file, and no broker has begun its bucket."""
    RECALLED = "recalled"
    HANDED_OVER = "handed_over"
    """Its bucket is begun: it is with one of `brokers`, or will be in a moment."""


class FindRows(TableRequest):
    """Body of FAR_TABLE_FIND: rows due from `from_ms` to before `until_ms`, in pages by due time and unique key.

    message_id, key, key_prefix: one of them, with a topic, or none. `is_waiting`: only PENDING rows. Without it also those that
    are known to be recalled or handed over. `cursor` is that of the page before.
    """

    topic: str | None = None
    message_id: str | None = None
    key: str | None = None
    key_prefix: str | None = None
    from_ms: Int64 | None = None
    until_ms: Int64 | None = None
    is_waiting: bool = False
    limit: int = 100
    cursor: str | None = None


class TableRow(JsonBody):
    """A row without its body. `queue_id` is -1 where its broker will choose a queue."""

    standing: RowStanding
    topic: str
    message_id: str
    due_ms: Int64 | None = None
    keys: str = ""
    queue_id: int = -1
    born_ms: Int64 = 0
    brokers: list[str] = msgspec.field(default_factory=list)


class RowsFound(TableAnswer):
    """Answer to FAR_TABLE_FIND. A page in the middle may be empty; on the last one `cursor` is None. TOO_MANY: too many rows or files
    would have to be looked through."""

    rows: list[TableRow] = msgspec.field(default_factory=list)
    cursor: str | None = None


# --- looking ----------------------------------------------------------------------------------------------------------


class FilesQuery(TableRequest):
    """Body of FAR_TABLE_FILES: files with rows that no bucket has taken yet, due from `from_ms` to before `until_ms`."""

    from_ms: Int64 | None = None
    until_ms: Int64 | None = None
    after_name: str = ""


class FilesPage(TableAnswer):
    """Answer to FAR_TABLE_FILES, by name. The next page is asked for with `next_after`; None on the last one."""

    files: list[ListedFile] = msgspec.field(default_factory=list)
    next_after: str | None = None
    frontier_ms: Int64 = 0


class StatusQuery(JsonBody):
    """Body of FAR_TABLE_STATUS. The one request that names no table: it asks which one the owner keeps."""


class ShareState(JsonBody):
    """A share that is not finished."""

    bucket_ms: Int64
    first: Int64
    end: Int64 | None = None
    broker: str = ""
    is_begun: bool = False
    stored: Int64 = 0
    allowed: Int64 = 0


class TableStatus(TableAnswer):
    """Answer to FAR_TABLE_STATUS. `rows` counts those of open files, recalled ones included; `shares` are the first of
    `share_count` unfinished ones."""

    table: str = ""
    url: str = ""
    bucket_ms: Int64 = 0
    frontier_ms: Int64 = 0
    split_ms: Int64 = 0
    """A job opened now would send rows due before this to the brokers."""
    now_ms: Int64 = 0
    file_count: Count = 0
    rows: Int64 = 0
    size_bytes: Int64 = 0
    recall_count: Count = 0
    garbage_count: Count = 0
    job_count: Count = 0
    share_count: Count = 0
    shares: list[ShareState] = msgspec.field(default_factory=list)
