"""Bodies of orbitmq's own requests about recurring messages: define one, look at them, pause and resume, delete.

Rules of this file
1. Instants are wall-clock milliseconds since 1970, lengths of time milliseconds. JSON members have the field's name in camel case.
2. What is absent is None, and absent on the wire. `body` is base64 on the wire.
3. A change is answered when its record is as durable as the broker's flush mode asks.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from orbitmq.limits.recurrence import RECURRENCE_CATCH_UP_MAX, RECURRENCE_PAGE_MAX
from orbitmq.protocol.remoting.bodies.json_body import Int64, JsonBody


class Overlap(StrEnum):
    """What happens to a run while the message of the run before it is still there."""

    ALLOW = "allow"
    """It is stored all the same."""
    SKIP = "skip"
    """It is left out unless `overlap_group` has consumed the message before it."""


class CatchUp(StrEnum):
    """What happens to runs that fell due while the broker was down."""

    NONE = "none"
    """They are left out. A run that is no more than RECURRENCE_GRACE_MS late still happens."""
    LATEST = "latest"
    """The latest of them happens."""
    ALL = "all"
    """The latest `catch_up_max` of them happen, in their order."""


class RecurringOutcome(StrEnum):
    """What a request did."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    PAUSED = "paused"
    RESUMED = "resumed"
    DELETED = "deleted"


class RecurringDefinition(JsonBody):
    """Body of PUT_RECURRING: what is sent, and when. Exactly one of `cron` and `interval_ms` is given.

    `start_ms`: no run is earlier; an interval is counted from it. `end_ms`: runs are before it. `count_max`: the rule ends
    after so many stored runs. `jitter_ms`: each run is put off by up to so much. `overlap_group`: whom `overlap` asks about.
    """

    name: str
    topic: str
    body: bytes = b""
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    cron: str | None = None
    zone: str = "UTC"
    interval_ms: Int64 | None = None
    start_ms: Int64 | None = None
    end_ms: Int64 | None = None
    count_max: Int64 | None = None
    jitter_ms: Int64 = 0
    overlap: Overlap = Overlap.ALLOW
    overlap_group: str | None = None
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_max: int = RECURRENCE_CATCH_UP_MAX


class RecurringView(JsonBody):
    """One recurring message as its broker keeps it.

    `next_ms` is when the next run happens, None when there is none (paused, or the rule has ended). `settled_ms`: runs planned
    for up to then have happened or were left out. `last_queue_id` and `last_queue_offset`: where the message of the latest
    run is. `trouble` says why runs are left out that should happen. In lists `definition.body` is empty; `body_bytes` is its
    size everywhere.
    """

    definition: RecurringDefinition
    generation: Int64 = 0
    begun_ms: Int64 = 0
    paused: bool = False
    settled_ms: Int64 = 0
    stored_count: Int64 = 0
    next_ms: Int64 | None = None
    last_queue_id: int | None = None
    last_queue_offset: Int64 | None = None
    trouble: str | None = None
    body_bytes: int = 0
    broker_name: str = ""


class RecurringQuery(JsonBody):
    """Body of GET_RECURRING: one by name, in full and with its next `runs`; or a page of all, of one topic if it is given.

    `cursor` is that of the page before.
    """

    name: str | None = None
    topic: str | None = None
    runs: int = 0
    limit: int = RECURRENCE_PAGE_MAX
    cursor: str | None = None


class RecurringPage(JsonBody):
    """Answer to GET_RECURRING, by name. `cursor` is None on the last page. A run is (planned, happens)."""

    recurring: list[RecurringView]
    cursor: str | None = None
    runs: list[tuple[Int64, Int64]] = msgspec.field(default_factory=list)


class RecurringChangeBody(JsonBody):
    """Body of SET_RECURRING_STATE, where `paused` says which, and of DELETE_RECURRING."""

    name: str
    paused: bool = False


class RecurringAnswer(JsonBody):
    """Answer to every change: what it did, and what holds now; None when there is no such message any more."""

    outcome: RecurringOutcome
    recurring: RecurringView | None = None
