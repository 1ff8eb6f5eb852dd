"""Why a store takes no messages, and what of that is reported."""

from __future__ import annotations

import logging

import pytest

from orbitmq.store.writability import CLOSED, COPY, SPACE, Writability


def test_a_reason_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    writability = Writability()
    for _ in range(2):
        writability.stop(SPACE, "the disk is full")
        writability.withhold("share", "90% are in use")
    assert [record.getMessage() for record in caplog.records] == [
        "no messages are accepted: the disk is full",
        "no messages are accepted: 90% are in use",
    ]
    assert writability.reason == "the disk is full; 90% are in use"


def test_nothing_is_reported_of_a_store_that_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    writability = Writability()
    writability.stops[CLOSED] = "the store is closed"
    writability.stop(SPACE, "the disk is full")
    writability.withhold("share", "90% are in use")
    assert caplog.records == []
    writability.allow(SPACE)
    assert writability.is_over


def test_that_a_log_is_a_copy_is_no_trouble() -> None:
    writability = Writability()
    writability.stops[COPY] = "ask the master"
    assert (writability.is_open, writability.trouble) == (False, "")
    writability.stop(SPACE, "the disk is full")
    writability.withhold("share", "90% are in use")
    assert writability.trouble == "the disk is full; 90% are in use"
