"""protocol codes and coverage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_server import Ran

from orbitmq.cli import protocol_tables
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

TESTS = Path(__file__).resolve().parents[2]
Run = Callable[..., Ran]


def test_codes(orbitmq: Run) -> None:
    rows = {row["code"]: row for row in json.loads(orbitmq("protocol", "codes", "-o", "json").out)}
    assert len(rows) == len(RequestCode)
    assert "queueOffset" in rows[11]["request_fields"]
    assert rows[361]["served_by"] == ["broker"]
    assert rows[361]["needs"] == rows[11]["needs"] == "Topic=topic:Sub Group=consumerGroup:Sub"
    responses = json.loads(orbitmq("protocol", "codes", "--responses", "-o", "json").out)
    assert len(responses) == len(ResponseCode)


def test_coverage_tells_four_states(orbitmq: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = {10: protocol_tables.Judgement(replayed=4), 370: protocol_tables.Judgement(judged_by="unit/test_x.py")}
    monkeypatch.setattr(protocol_tables, "judged_requests", lambda: judged)
    ran = orbitmq("protocol", "coverage", "-o", "json")
    rows = {row["code"]: (row["state"], row["by"]) for row in json.loads(ran.out)}
    assert len(rows) == len(RequestCode)
    assert rows[10] == ("replayed", "4 exchanges")
    assert rows[370] == ("served", "unit/test_x.py")
    assert rows[13] == ("unused", "")
    assert rows[902][0] == "refused"
    assert "one broker" in rows[902][1]
    assert "1 replayed" in ran.err
    unused = json.loads(orbitmq("protocol", "coverage", "--state", "unused", "-o", "json").out)
    assert 0 < len(unused) < 20
    assert {row["state"] for row in unused} == {"unused"}


def test_whatever_is_served_has_a_judge_that_exists() -> None:
    for code, row, known in protocol_tables.request_states():
        if known.state is protocol_tables.Coverage.SERVED:
            assert (TESTS / known.by).is_file(), code.name
        assert bool(row.served_by) == (
            known.state in (protocol_tables.Coverage.REPLAYED, protocol_tables.Coverage.SERVED)
        )


def test_the_packaged_file_names_known_codes() -> None:
    assert protocol_tables.judged_requests().keys() <= {code.value for code in RequestCode}
