"""Bytes of a log are given to copies of that log, and to nobody else."""

from __future__ import annotations

import pytest

from orbitmq.limits.replication import MEND_READ_BYTES
from orbitmq.protocol.remoting.replication_bodies import LogRangeRequest
from orbitmq.replication.epoch_marks import EpochMark, EpochMarks, encode_marks
from orbitmq.replication.range_answers import OwnLog, RangeRefused, check_range

FILE = 4 * MEND_READ_BYTES
OWN = OwnLog("pair", "a-log", EpochMarks([EpochMark(1, 0), EpochMark(2, 5_000)]), 1_000, 3 * FILE, FILE)


def wanted(*marks: tuple[int, int], **more: object) -> LogRangeRequest:
    epochs = encode_marks(EpochMarks(EpochMark(*one) for one in marks or ((1, 0), (2, 5_000)))).decode()
    fields = {"broker_name": "pair", "log": "a-log", "end": 2 * FILE, "epochs": epochs, "position": 2_000, "size": 500}
    return LogRangeRequest(**{**fields, **more})  # type: ignore[arg-type]


def test_a_copy_of_the_same_log_gets_what_it_lacks() -> None:
    assert check_range(wanted(), OWN) == 500
    assert check_range(wanted((1, 0)), OWN) == 500, "the other has the part of an earlier epoch"
    assert check_range(wanted(broker_name=""), OWN) == 500, "the id of the log says which it is"


def test_who_asks_beyond_the_end_gets_what_there_is() -> None:
    own = OWN._replace(end=2_100)
    assert check_range(wanted(), own) == 100
    with pytest.raises(RangeRefused, match="not from 2100 to 2600"):
        check_range(wanted(position=2_100), own)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (wanted(broker_name="other"), "another group"),
        (wanted(log="another"), "the log here is a-log"),
        (wanted(log=""), "the log here is a-log"),
        (wanted(position=0), "confirmed here"),
        (wanted(position=3 * FILE - 100), "no piece of one file"),
        (wanted(position=3 * FILE), "confirmed here"),
        (wanted(position=FILE - 100), "no piece of one file"),
        (wanted(position=-1), "no piece of one file"),
        (wanted(size=0), "no piece of one file"),
        (wanted(size=MEND_READ_BYTES + 1), "no piece of one file"),
        (wanted(epochs="1\n2\n"), "damaged"),
        (wanted((7, 0)), "no epoch is known to both"),
        (wanted((1, 0), (3, 2_100)), "parted at 2100"),
        (wanted(position=2 * FILE), "parted at"),
    ],
)
def test_others_get_nothing(request_: LogRangeRequest, why: str) -> None:
    with pytest.raises(RangeRefused, match=why):
        check_range(request_, OWN)


def test_a_broker_whose_log_has_no_id_has_no_copies() -> None:
    with pytest.raises(RangeRefused, match="without an id"):
        check_range(wanted(log=""), OWN._replace(log_id=""))
