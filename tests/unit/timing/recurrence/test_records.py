"""The stored form: written and read, by this program, older and newer ones."""

from __future__ import annotations

import json

import pytest

from orbitmq.errors import RecordError
from orbitmq.protocol.remoting.recurring_bodies import CatchUp, Overlap
from orbitmq.timing.recurrence.records import Record, decode, defined, deleted, encode, progressed, replay
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.state import RecurringState, RunMessage, RunPlace, RunProgress

RULE = Rule(
    cron="0 9 * * MON-FRI", zone="Europe/Berlin", start_ms=5, end_ms=9, count_max=7, jitter_ms=3, overlap=Overlap.SKIP,
    overlap_group="workers", catch_up=CatchUp.NONE, catch_up_max=4,
)  # fmt: skip
FULL = RecurringState(
    name="report", generation=1_790_000_000_000, begun_ms=1_790_000_000_000, rule=RULE,
    message=RunMessage("reports", b"\x00\xff", {"TAGS": "daily"}),
    progress=RunProgress(settled_ms=11, stored_count=2, last=RunPlace(3, 99)), paused=True,
)  # fmt: skip

FIRST_VERSION = (
    b'{"kind":"defined","version":1,"recurring":{"name":"report","generation":1790000000000,"begun_ms":1790000000000,'
    b'"rule":{"cron":"0 9 * * MON-FRI","zone":"Europe/Berlin","start_ms":5,"end_ms":9,"count_max":7,"jitter_ms":3,'
    b'"overlap":"skip","overlap_group":"workers","catch_up":"none","catch_up_max":4},'
    b'"message":{"topic":"reports","body":"AP8=","properties":{"TAGS":"daily"}},'
    b'"progress":{"settled_ms":11,"stored_count":2,"last":{"queue_id":3,"queue_offset":99}},"paused":true}}'
)
"""What version 1 looks like. It stands in the logs of users: whoever changes it needs a new version."""

SMALL = (
    b'{"kind":"defined","version":1,"recurring":{"name":"r","generation":1,"begun_ms":1,"rule":{"interval_ms":60000},'
    b'"message":{"topic":"t","body":"","properties":{}},"progress":{"settled_ms":1}}}'
)


def test_the_stored_form_is_what_it_was() -> None:
    assert encode(defined(FULL)) == FIRST_VERSION
    assert encode(progressed(FULL)) == (
        b'{"kind":"progressed","version":1,"name":"report","generation":1790000000000,'
        b'"progress":{"settled_ms":11,"stored_count":2,"last":{"queue_id":3,"queue_offset":99}}}'
    )
    assert encode(deleted(FULL)) == b'{"kind":"deleted","version":1,"name":"report","generation":1790000000000}'


@pytest.mark.parametrize("record", [defined(FULL), progressed(FULL), deleted(FULL)])
def test_what_is_written_is_read(record: Record) -> None:
    assert decode(encode(record), "offset 0") == record


def test_what_is_left_out_has_its_default() -> None:
    found = decode(SMALL, "offset 0")
    assert replay(None, found) == RecurringState(
        name="r", generation=1, begun_ms=1, rule=Rule(interval_ms=60_000), message=RunMessage("t", b""),
        progress=RunProgress(settled_ms=1),
    )  # fmt: skip
    assert encode(found) == SMALL


def test_fields_that_a_later_program_added_are_ignored() -> None:
    later = json.loads(FIRST_VERSION)
    later["written_by"] = "9.1"
    later["recurring"]["owner"] = {"team": "x"}
    later["recurring"]["rule"]["holidays"] = ["DE"]
    later["recurring"]["progress"]["skipped_count"] = 4
    assert decode(json.dumps(later).encode(), "offset 0") == defined(FULL)


def test_a_later_version_is_refused_whatever_else_it_says() -> None:
    for later in (
        b'{"version":2}',
        FIRST_VERSION.replace(b'"version":1', b'"version":2'),
        b'{"version":0,"kind":"deleted"}',
    ):
        with pytest.raises(
            RecordError, match=r"at offset 4711 has version [20], this program knows version 1"
        ) as refused:
            decode(later, "offset 4711")
        assert "release of orbitmq" in (refused.value.remedy or "")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "at offset 4711 cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"kind":"deleted","name":"r","generation":1}', "version"),
        (b'{"version":1}', "kind"),
        (b'{"version":1,"kind":"moved"}', "moved"),
        (b'{"version":1,"kind":"deleted","name":"r"}', "generation"),
        (b'{"version":"1","kind":"deleted","name":"r","generation":1}', "version"),
        (SMALL.replace(b"60000", b"6e99"), "cannot be read"),
        (SMALL.replace(b'"body":""', b'"body":"?"'), "body"),
        (FIRST_VERSION.replace(b'"skip"', b'"queue"'), "overlap"),
        (FIRST_VERSION[:-1], "cannot be read"),
        (b'{"version":1,"kind":"deleted","name":"\xff","generation":1}', "cannot be read"),
    ],
)
def test_what_is_no_record_is_reported_with_its_place(data: bytes, said: str) -> None:
    with pytest.raises(RecordError) as refused:
        decode(data, "offset 4711")
    assert said in str(refused.value)
    assert "offset 4711" in str(refused.value)


def test_a_rule_that_is_not_usable_any_more_can_still_be_read() -> None:
    found = decode(SMALL.replace(b"60000", b"1"), "offset 0")
    assert replay(None, found) is not None


def test_records_in_their_order_give_the_state() -> None:
    later = RunProgress(settled_ms=50, stored_count=3, last=RunPlace(0, 1))
    moved = RecurringState(**{name: getattr(FULL, name) for name in FULL.__struct_fields__} | {"progress": later})
    state = replay(replay(None, defined(FULL)), progressed(moved))
    assert state == moved
    assert replay(state, deleted(moved)) is None


def test_the_progress_of_a_generation_that_was_replaced_changes_nothing() -> None:
    newer = RecurringState(
        **{name: getattr(FULL, name) for name in FULL.__struct_fields__} | {"generation": FULL.generation + 1}
    )
    assert replay(newer, progressed(FULL)) is newer
    assert replay(None, progressed(FULL)) is None
