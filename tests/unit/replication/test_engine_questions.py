"""What a member asks the engine, and which answers it believes."""

from __future__ import annotations

import pytest

from orbitmq.replication.engine_questions import EngineQuestions
from orbitmq.replication.replica_steps import AskEngine, EngineHolds, KeptEpoch, StopMember
from orbitmq.replication.view import View

SEEN = KeptEpoch(epoch=3, serial=8)


def view_of(epoch: int, serial: int) -> View:
    return View(epoch=epoch, serial=serial, leader="a", claim="a1", in_sync=("a", "b"))


def test_a_question_is_made_to_the_revision_that_was_heard_last() -> None:
    questions, view = EngineQuestions(), view_of(3, 9)
    assert questions.ask(None, SEEN) == AskEngine(1, 0, None)
    assert questions.answered(EngineHolds(1, view_of(3, 8), revision=40)) == view_of(3, 8)
    assert questions.ask(view, SEEN) == AskEngine(2, 40, view)


def test_an_answer_counts_once_and_only_for_the_question_that_is_asked() -> None:
    questions = EngineQuestions()
    questions.ask(None, SEEN)
    assert questions.answered(EngineHolds(7, view_of(3, 8), revision=40)) is None
    assert questions.asked is not None
    assert questions.answered(EngineHolds(1, view_of(3, 8), revision=40)) is not None
    assert questions.answered(EngineHolds(1, view_of(3, 8), revision=40)) is None


def test_what_comes_for_a_question_that_was_given_up_is_no_answer() -> None:
    questions = EngineQuestions()
    questions.ask(None, SEEN)
    assert questions.failed(1)
    assert not questions.failed(1)
    questions.ask(None, SEEN)
    assert questions.answered(EngineHolds(1, view_of(3, 9), revision=41)) is None
    assert (questions.revision, questions.asked is not None) == (0, True)


@pytest.mark.parametrize("older", [view_of(2, 9), view_of(3, 7)])
def test_an_engine_with_less_than_was_seen_when_it_was_asked_was_put_back(older: View) -> None:
    questions = EngineQuestions()
    questions.ask(None, SEEN)
    answer = questions.answered(EngineHolds(1, older, revision=12))
    assert isinstance(answer, StopMember)
    assert f"gone back to epoch {older.epoch} and change {older.serial}" in answer.reason
    assert "accept-loss" in answer.remedy
    assert questions.revision == 0


def test_an_engine_without_this_group_is_new_to_a_new_member_and_lost_to_others() -> None:
    questions = EngineQuestions()
    questions.ask(None, KeptEpoch())
    assert questions.answered(EngineHolds(1, None, revision=0)) is None
    assert questions.asked is None
    questions.ask(None, SEEN)
    assert isinstance(questions.answered(EngineHolds(2, None, revision=0)), StopMember)


def test_what_was_heard_while_the_question_was_under_way_does_not_count() -> None:
    questions = EngineQuestions()
    questions.ask(None, SEEN)  # and then an epoch 4 is heard of: the answer was made before it
    assert questions.answered(EngineHolds(1, view_of(3, 8), revision=40)) == view_of(3, 8)
