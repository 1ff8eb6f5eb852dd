"""What becomes of each key of a file, before a server reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.server.configuration.explaining import Fate, explain, problem_of
from orbitmq.server.configuration.settings import Role

BOTH = frozenset(Role)
OF_AN_OLD_BLOG = """\
brokerName=broker-a
fileReservedTime=120
mapedFileSizeCommitLog=1073741824
mapedFileSizeConsumeQueue=300000
duplicationEnable=false
innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"Sesame-Sesame"}
fileReservedTime=48
"""


def test_each_key_has_a_fate_and_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(OF_AN_OLD_BLOG)
    keys = explain(file, BOTH)
    assert [(key.key, key.value, key.fate) for key in keys] == [
        ("brokerName", "broker-a", Fate.USED),
        ("fileReservedTime", "120 hours", Fate.OVERRULED),
        ("mapedFileSizeCommitLog", "1073741824", Fate.NO_EFFECT),
        ("mapedFileSizeConsumeQueue", "300000", Fate.NO_EFFECT),
        ("duplicationEnable", "false", Fate.HARMLESS),
        ("innerClientAuthenticationCredentials", "******", Fate.USED),
        ("fileReservedTime", "48 hours", Fate.USED),
    ]
    assert "line 7" in keys[1].meaning
    assert "Old spelling of mappedFileSizeCommitLog" in keys[2].meaning
    assert all(key.meaning for key in keys)
    assert problem_of(file, BOTH) is None


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("fileReservdTime=4", "Did you mean fileReservedTime?"),
        ("fileReservedTime=soon", "give a whole number"),
        ("enableDLegerCommitLog=true", "A replicated group does what it is for"),
    ],
)
def test_what_stops_a_start_is_said_beside_its_key(tmp_path: Path, line: str, meaning: str) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(line)
    (key,) = explain(file, BOTH)
    assert key.fate is Fate.STOPS
    assert meaning in key.meaning
    assert problem_of(file, BOTH) is not None


def test_what_keys_say_together_is_a_problem_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("writeBufferLowWaterMark=20\nwriteBufferHighWaterMark=10\n")
    assert {key.fate for key in explain(file, BOTH)} <= {Fate.USED}
    assert "is above" in (problem_of(file, BOTH) or "")


def test_a_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.conf"):
        explain(tmp_path / "none.conf", BOTH)
