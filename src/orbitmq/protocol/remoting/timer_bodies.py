"""Bodies of orbitmq's own requests about pending timer messages: change one, ask for one, list and count them.

A change (recall, reschedule) or a question names its timers by a `TimerSelector` and gets one `TimerAnswer` for each
timer that it names. Lists and counts are pages over everything that is pending.

Rules of this file
1. Instants are wall-clock milliseconds since 1970, lengths of time milliseconds.
2. What is absent is None, and absent on the wire. JSON members have the field's name in camel case.
3. A verdict is the truth at the moment of the answer; a change is answered when its record is as durable as the
   broker's flush mode asks.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from orbitmq.protocol.remoting.bodies.json_body import Int64, JsonBody

TIER_NEAR: Final = "near"
"""Due within three days, or not taken by the far tier."""
TIER_FAR: Final = "far"
"""In files by due date."""


class Verdict(StrEnum):
    """What became of one timer."""

    RECALLED = "recalled"
    """It is not delivered any more."""
    RESCHEDULED = "rescheduled"
    """It has a new due time; `TimerViewBody.deliver_ms` is the new one."""
    PENDING = "pending"
    """It waits for its due time (answer to a question, or the one of an ambiguous selection)."""
    ALREADY_DELIVERED = "already_delivered"
    ALREADY_RECALLED = "already_recalled"
    NOT_FOUND = "not_found"
    """No pending timer is selected, and nothing is known of one that was."""
    TOO_LATE = "too_late"
    """It is being delivered, or being changed by somebody else, right now."""
    AMBIGUOUS = "ambiguous"
    """Several timers are selected and `all` is not set: nothing was changed."""


class TimerSelector(JsonBody):
    """Which timers: a handle, or a topic with a message id (its unique key), or a topic with a key.

    `all` allows a key to select several; without it several selected ones are AMBIGUOUS.
    """

    handle: str | None = None
    topic: str | None = None
    message_id: str | None = None
    key: str | None = None
    all: bool = False


class ChangeTimers(JsonBody):
    """Body of RECALL_TIMERS, RESCHEDULE_TIMERS, TIMER_STATUS and GET_TIMER.

    The two times are those of RESCHEDULE_TIMERS, which has exactly one of them: an instant, or a length of time from
    the moment the broker handles the request.
    """

    selector: TimerSelector
    deliver_ms: Int64 | None = None
    delay_ms: Int64 | None = None


class TimerViewBody(JsonBody):
    """One timer message, without its body.

    `message_id` is the unique key its sender knows; `handle` is what recalls it. `size` counts the bytes of the stored
    record. `delivered_ms` is when it was stored in its topic, of one that was delivered.
    """

    topic: str
    message_id: str
    keys: str = ""
    deliver_ms: Int64 = 0
    stored_ms: Int64 = 0
    size: int = 0
    tier: str = TIER_NEAR
    queue_id: int = 0
    broker_name: str = ""
    handle: str = ""
    delivered_ms: Int64 | None = None


class TimerAnswer(JsonBody):
    """What became of one timer. `timer` is None when nothing is known but the verdict."""

    verdict: Verdict
    timer: TimerViewBody | None = None


class TimerAnswers(JsonBody):
    """Answer to RECALL_TIMERS, RESCHEDULE_TIMERS and TIMER_STATUS: one for each selected timer, at least one.

    `changed` counts those that are RECALLED or RESCHEDULED by this request. `more`: further ones are selected, which were
    left as they are; the same request again goes on with them.
    """

    answers: list[TimerAnswer]
    changed: int = 0
    more: bool = False


class TimerQuery(JsonBody):
    """Body of LIST_TIMERS: what of everything that is pending, and where the page begins.

    `from_ms` is included, `until_ms` is not. `key` and `key_prefix` need a topic. `tier` is `near`, `far` or absent for
    both. `cursor` is that of the page before.
    """

    topic: str | None = None
    from_ms: Int64 | None = None
    until_ms: Int64 | None = None
    key: str | None = None
    key_prefix: str | None = None
    tier: str | None = None
    limit: int = 50
    cursor: str | None = None


class TimerPage(JsonBody):
    """Answer to LIST_TIMERS, earliest due first. `cursor` is None on the last page.

    `left_out` is not 0 on the pages of the far tier while files of it are damaged: at most so many messages within the times
    asked for wait in them, are counted, and stand on no page.
    """

    timers: list[TimerViewBody]
    cursor: str | None = None
    left_out: int = 0


class TimerMessageBody(JsonBody):
    """Answer to GET_TIMER: one pending timer message in full. `body` is as it is stored, base64 on the wire; `sys_flag` says
    how it is compressed."""

    verdict: Verdict
    timer: TimerViewBody | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    sys_flag: int = 0


class CountQuery(JsonBody):
    """Body of COUNT_TIMERS. `bucket_ms` is the width of a bucket of due times; 0 asks for no buckets."""

    topic: str | None = None
    from_ms: Int64 | None = None
    until_ms: Int64 | None = None
    bucket_ms: Int64 = 0


class TimerCountsBody(JsonBody):
    """Answer to COUNT_TIMERS, of one topic or all. A bucket is (its first instant, how many fall due in it); empty ones are
    left out. `next_due_ms` is at or before the next due time of any topic."""

    pending: int = 0
    by_topic: dict[str, int] = msgspec.field(default_factory=dict)
    buckets: list[tuple[Int64, int]] = msgspec.field(default_factory=list)
    near: int = 0
    far: int = 0
    next_due_ms: Int64 | None = None


class FarTierAction(StrEnum):
    STATUS = "status"
    COMPACT = "compact"
    """Write what waits in the log to files, and small files to larger ones, now."""
    RESTORE = "restore"
    """Move everything to the near ones, and take nothing in until the broker starts again."""
    REPAIR = "repair"
    """Get what can be read out of damaged files, and put what is known of the rest into the quarantine topic."""


class FarTierRequest(JsonBody):
    """Body of FAR_TIER."""

    action: FarTierAction = FarTierAction.STATUS


class FarTierState(JsonBody):
    """Answer to FAR_TIER. Without `is_installed` the broker has nothing that could read files."""

    is_installed: bool = False
    takes_messages: bool = False
    pending: int = 0
    in_log: int = 0
    """Pending messages that no file holds yet."""
    files: int = 0
    file_rows: int = 0
    """Rows that have not been handed over, those of recalled messages included."""
    tombstones: int = 0
    is_published: bool = True
    """Whether the manifest beside the files says all this. It follows within half a minute of a compaction."""
    next_due_ms: Int64 | None = None
    damaged: dict[str, str] = msgspec.field(default_factory=dict)
    """Files that are left out -> why."""
    trouble: str | None = None
    """Why the files cannot be reached at the moment."""
    loaded_jobs: int = 0
    """Jobs that loaded files lately, or whose rows still wait."""
    loading: dict[str, str] = msgspec.field(default_factory=dict)
    """Jobs whose files are being checked -> how far that is."""
