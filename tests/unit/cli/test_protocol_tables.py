"""protocol codes and coverage."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from scripted_server import Ran

from orbitmq.cli import protocol_tables
from orbitmq.protocol.remoting.codes import UNUSED_CODES, RequestCode, ResponseCode

Run = Callable[..., Ran]


def test_codes(orbitmq: Run) -> None:
    rows = {row["code"]: row for row in json.loads(orbitmq("protocol", "codes", "-o", "json").out)}
    assert len(rows) == len(RequestCode)
    assert "queueOffset" in rows[11]["request_fields"]
    responses = json.loads(orbitmq("protocol", "codes", "--responses", "-o", "json").out)
    assert len(responses) == len(ResponseCode)


def test_coverage_counts_replayed_codes_only(orbitmq: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_tables, "replayed_exchanges", lambda: {10: 4, 11: 0})
    ran = orbitmq("protocol", "coverage", "-o", "json")
    rows = {row["code"]: row for row in json.loads(ran.out)}
    assert (rows[10]["state"], rows[10]["replayed"]) == ("implemented", 4)
    assert rows[11]["state"] == rows[12]["state"] == "missing"
    assert rows[13]["state"] == "unused"
    assert f"1 of {len(RequestCode) - len(UNUSED_CODES)} request codes" in ran.err
    missing = json.loads(orbitmq("protocol", "coverage", "--missing", "-o", "json").out)
    assert len(missing) == len(RequestCode) - len(UNUSED_CODES) - 1


def test_the_packaged_file_names_known_codes() -> None:
    known = {code.value for code in RequestCode}
    assert all(code in known and count >= 0 for code, count in protocol_tables.replayed_exchanges().items())
