"""What a broker does with its shares, step by step."""

from __future__ import annotations

import pytest

from orbitmq.errors import RecordError
from orbitmq.protocol.far_table import (
    ListedFile,
    Recall,
    RecallsPage,
    ShareChanged,
    SharesClaimed,
    ShareView,
    TableVerdict,
)
from orbitmq.timing.far_table.promotion import Advance, AskRecalls, Begin, Promoter, ReadRows, RowMark

OK = TableVerdict.OK
HOUR = 3_600_000
FILE = ListedFile("a", 9, 900, 0, HOUR)
NAMES = [("T", f"m{number}") for number in range(9)]


def view(bucket_ms: int = 0, first: int = 0, **more: object) -> ShareView:
    return ShareView(bucket_ms, first, 1, [FILE], **more)  # type: ignore[arg-type]


@pytest.fixture
def promoter() -> Promoter:
    return Promoter("t", "x", "s")


def begun(promoter: Promoter, *, allowed: int = 100, recall_count: int = 0, version: int = 2) -> None:
    promoter.claimed(SharesClaimed(OK, version - 1, shares=[view()]))
    step = promoter.next_step()
    assert isinstance(step, Begin)
    promoter.began(step, ShareChanged(OK, version, allowed=allowed, recall_count=recall_count))


def read(promoter: Promoter, count: int, *, is_end: bool = False):
    step = promoter.next_step()
    assert isinstance(step, ReadRows)
    batch = promoter.rows_read(step, NAMES[step.start : min(step.start + count, step.stop)], is_end=is_end)
    for place in batch.places:
        promoter.seen(RowMark("t", 0, batch.start + place))
    return batch


def test_from_the_claim_to_the_end(promoter):
    assert promoter.next_step() is None
    begun(promoter)
    first, second = read(promoter, 5), read(promoter, 4, is_end=True)
    assert promoter.next_step() is None, "nothing is reported before it is durable"
    promoter.durable(first)
    assert promoter.next_step() is None
    promoter.durable(second)
    step = promoter.next_step()
    assert isinstance(step, Advance)
    assert (step.request.stored, step.request.is_done) == (9, True)
    assert promoter.next_step() is None, "one step is in hand"
    promoter.failed(step)
    assert promoter.next_step() == step
    promoter.advanced(promoter.next_step() or step, ShareChanged(OK, 3))
    assert (promoter.marks, list(promoter.unfinished), promoter.stored_count) == ({}, [], 9)


def test_rows_wait_until_they_are_allowed(promoter):
    begun(promoter, allowed=4)
    batch = read(promoter, 9)
    assert (batch.upto, batch.places) == (4, [0, 1, 2, 3])
    promoter.durable(batch)
    step = promoter.next_step()
    assert isinstance(step, Advance)
    assert (step.request.stored, step.request.is_done) == (4, False)
    promoter.advanced(step, ShareChanged(OK, 3, allowed=8))
    assert read(promoter, 9).upto == 8


def test_recalled_rows_have_numbers_and_are_not_stored(promoter):
    begun(promoter, recall_count=2)
    for number, following in ((3, 3), (5, None)):
        step = promoter.next_step()
        assert isinstance(step, AskRecalls)
        promoter.recalls_arrived(
            step, RecallsPage(OK, 2, recalls=[Recall(0, "T", f"m{number}", number)], next_after=following)
        )
    assert read(promoter, 9, is_end=True).places == [0, 1, 2, 4, 6, 7, 8]


def test_after_a_crash_it_goes_on_behind_its_log(promoter):
    for number in (0, 1, 3):
        promoter.seen(RowMark("t", 0, number))
    promoter.seen(RowMark("another", 0, 8))
    promoter.claimed(SharesClaimed(OK, 5, shares=[view(is_begun=True, allowed=100, stored=2)]))
    step = promoter.next_step()
    assert isinstance(step, ReadRows)
    assert step.start == 4
    restored = Promoter("t", "x", "s")
    restored.restore(promoter.marks)
    restored.claimed(SharesClaimed(OK, 5, shares=[view(is_begun=True, allowed=100)]))
    assert restored.next_step() == step


def test_a_late_list_does_not_bring_back_a_finished_share(promoter):
    begun(promoter)
    promoter.durable(read(promoter, 9, is_end=True))
    step = promoter.next_step()
    assert isinstance(step, Advance)
    promoter.advanced(step, ShareChanged(OK, 3))
    promoter.claimed(SharesClaimed(OK, 2, shares=[view(is_begun=True, allowed=100)]))
    assert promoter.next_step() is None


def test_what_goes_to_another_broker_is_dropped(promoter):
    promoter.claimed(SharesClaimed(OK, 1, shares=[view()]))
    step = promoter.next_step()
    assert isinstance(step, Begin)
    promoter.began(step, ShareChanged(TableVerdict.NOT_YOURS, 2))
    assert promoter.next_step() is None
    begun(promoter, version=4)
    reading = promoter.next_step()
    assert isinstance(reading, ReadRows)
    promoter.claimed(SharesClaimed(OK, 5))
    assert promoter.rows_read(reading, NAMES, is_end=True) is None


def test_a_log_that_takes_nothing_is_asked_again(promoter):
    begun(promoter)
    step = promoter.next_step()
    assert isinstance(step, ReadRows)
    batch = promoter.rows_read(step, NAMES, is_end=True)
    assert batch is not None
    promoter.seen(RowMark("t", 0, 0))
    promoter.not_appended(batch)
    again = promoter.next_step()
    assert isinstance(again, ReadRows)
    assert again.start == 1


def test_unreadable_shares_let_others_go_before_them(promoter):
    promoter.claimed(SharesClaimed(OK, 1, shares=[view(), view(HOUR)]))
    step = promoter.next_step()
    assert isinstance(step, Begin)
    promoter.set_aside(step)
    request = promoter.claim_request()
    assert (request.wants, request.keeps) == (False, False), "another broker may be able to read it"
    other = promoter.next_step()
    assert isinstance(other, Begin)
    assert other.request.bucket_ms == HOUR
    promoter.failed(other)
    promoter.try_again()
    assert promoter.next_step() == step


def test_it_wants_the_next_share_while_it_stores_one(promoter):
    assert promoter.claim_request().wants
    assert not promoter.claim_request(is_able=False).keeps
    promoter.claimed(SharesClaimed(OK, 1, shares=[view()]))
    assert promoter.claim_request().wants
    promoter.claimed(SharesClaimed(OK, 2, shares=[view(), view(HOUR)]))
    request = promoter.claim_request()
    assert (request.wants, request.keeps) == (False, True)


def test_marks_as_text():
    mark = RowMark("t", 3 * HOUR, 17)
    assert RowMark.parse(mark.text()) == mark
    for text in ("", "t", "t,1", "t,1,2,3", "t,x,1", "t,1,-1", ",1,1", "t,1," + "9" * 30):
        with pytest.raises(RecordError):
            RowMark.parse(text)
