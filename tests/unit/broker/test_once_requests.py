"""What senders of idempotent messages ask beside their sends: which scopes are known, and that an epoch is finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.once.identity import Once
from orbitmq.broker.once.journal import (
    JOURNAL_FILE,
    FinishedBlock,
    OnceJournal,
    PositionBlock,
    decode_blocks,
    encode_finished,
    encode_position,
)
from orbitmq.broker.once.memory import SCOPE_BYTES, Finished, OnceBounds, OnceMemory, pack
from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.once_bodies import FinishEpoch, ScopeList, ScopeQuery, ScopeView
from orbitmq.store.files import OsFiles

HOUR_MS = 3_600_000


def once(scope: str = "job/0", epoch: int = 0, key: str = "k") -> dict[str, str]:
    return {"UNIQ_KEY": "U" * 32, "ORBITMQ_SCOPE": scope, "ORBITMQ_EPOCH": str(epoch), "ORBITMQ_ONCE_KEY": key}


def find(rig, prefix: str) -> ScopeList:
    answer = rig.call(RequestCode.FIND_SCOPES, {}, ScopeQuery(prefix=prefix).encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return ScopeList.decode(answer.body)


def finish(rig, scope: str, epoch: int = 0, mark: int = 7, brief: bool = False):
    body = FinishEpoch(scope=scope, epoch=epoch, mark=mark, brief=brief)
    return rig.call(RequestCode.FINISH_EPOCH, {}, body.encode())


def test_scopes_are_found_by_the_beginning_of_their_names(rig):
    for scope, epoch in (("job/0@a", 0), ("job/0@b", 3), ("job/1@a", 0)):
        rig.sent_ok("T", b"x", once(scope, epoch))
    rig.sent_ok("T", b"x", once("job/0@b", 4))
    assert find(rig, "job/0@").scopes == [
        ScopeView(scope="job/0@a", epoch=0, keys=1),
        ScopeView(scope="job/0@b", epoch=4, keys=2, previous_epoch=3),
    ]
    assert find(rig, "nobody").scopes == []


def test_a_finished_epoch_is_stale_and_costs_no_keys(rig):
    rig.sent_ok("T", b"x", once())
    assert finish(rig, "job/0").code == ResponseCode.SUCCESS
    assert rig.idempotence.memory.key_count == 0
    assert rig.send("T", b"x", once()).code == ResponseCode.STALE_EPOCH
    assert find(rig, "job/0").scopes == [ScopeView(scope="job/0", epoch=1, keys=0, finished_epoch=0)]


def test_finishing_again_is_harmless_and_with_other_things_refused(rig):
    rig.sent_ok("T", b"x", once())
    assert finish(rig, "job/0", mark=7).code == ResponseCode.SUCCESS
    assert finish(rig, "job/0", mark=7).code == ResponseCode.SUCCESS
    answer = finish(rig, "job/0", mark=8)
    assert answer.code == ResponseCode.STALE_EPOCH
    assert "other things were sent" in answer.remark


def test_a_scope_goes_on_with_its_next_epoch(rig):
    rig.sent_ok("T", b"x", once(epoch=4))
    finish(rig, "job/0", epoch=4)
    rig.sent_ok("T", b"x", once(epoch=5))
    rig.sent_ok("T", b"x", once(epoch=5))
    assert len(rig.records("T")) == 2


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (RequestCode.FIND_SCOPES, b'{"prefix":""}'),
        (RequestCode.FIND_SCOPES, b"nonsense"),
        (RequestCode.FINISH_EPOCH, b'{"scope":"","epoch":0,"mark":1}'),
        (RequestCode.FINISH_EPOCH, b'{"scope":"~own","epoch":0,"mark":1}'),
        (RequestCode.FINISH_EPOCH, b'{"scope":"s","epoch":-1,"mark":1}'),
        (RequestCode.FINISH_EPOCH, b'{"scope":"s","epoch":9223372036854775807,"mark":1}'),
        (RequestCode.FINISH_EPOCH, b'{"scope":"s","epoch":1}'),
    ],
)
def test_nonsense_is_refused(rig, code, body):
    assert rig.call(code, {}, body).code == ResponseCode.INVALID_PARAMETER


def test_what_ended_for_good_is_forgotten_after_an_hour_and_the_rest_is_not():
    memory = OnceMemory(OnceBounds())
    for name, brief in (("job", True), ("kept", False)):
        memory.keep(Once(name, 0, 1), pack(1, 1, 1), 0, 0)
        assert memory.finish(name, Finished(0, 7, brief), 1_000, 0)
    memory.expire(HOUR_MS, 0)
    assert memory.scope_count == 2
    assert memory.expire(HOUR_MS + 1_000, 0)
    assert [scope.name for scope in memory.scopes("", 9)] == ["kept"]
    assert memory.used_bytes == SCOPE_BYTES
    with pytest.raises(Refusal):
        memory.find(Once("kept", 0, 1))


def test_a_scope_that_is_used_again_stays():
    memory = OnceMemory(OnceBounds())
    memory.finish("job", Finished(0, 7, True), 0, 0)
    memory.keep(Once("job", 1, 1), pack(1, 1, 1), 0, 0)
    memory.expire(2 * HOUR_MS, 0)
    assert memory.find(Once("job", 1, 1)) == pack(1, 1, 1)


def test_an_end_survives_a_restart(rig):
    rig.sent_ok("T", b"x", once())
    rig.sent_ok("T", b"x", once("job/1"))
    finish(rig, "job/0")
    rig.close()
    blocks = [block for block, _ in decode_blocks((rig.root / JOURNAL_FILE).read_bytes())]
    assert [block.finished for block in blocks if isinstance(block, FinishedBlock)] == [Finished(0, 7, False)]
    rig.open()
    assert rig.send("T", b"x", once()).code == ResponseCode.STALE_EPOCH
    rig.sent_ok("T", b"x", once("job/1"))
    assert rig.idempotence.repeat_count == 1


def test_an_end_that_was_lost_leaves_the_keys_in_the_log(rig):
    rig.sent_ok("T", b"x", once())
    finish(rig, "job/0")
    rig.close()
    (rig.root / JOURNAL_FILE).unlink()
    rig.open()
    rig.sent_ok("T", b"x", once())
    assert rig.idempotence.repeat_count == 1


def test_a_shorter_journal_keeps_the_ends_that_still_say_something(tmp_path: Path):
    journal = OnceJournal(OsFiles(), tmp_path / JOURNAL_FILE)
    last = encode_position(PositionBlock(0, -1, 0, True))
    journal.append(
        [encode_finished("job", Finished(4, 7, True), 1), encode_finished("gone", Finished(4, 7, True), 1), last]
    )
    journal.shorten(lambda scope, epoch: (scope, epoch) == ("job", 5), last)
    journal.close()
    blocks = [block for block, _ in decode_blocks((tmp_path / JOURNAL_FILE).read_bytes())]
    assert blocks == [FinishedBlock("job", Finished(4, 7, True), 1), PositionBlock(0, -1, 0, True)]


def test_bounds_hold_for_scopes_that_are_only_finished():
    memory = OnceMemory(OnceBounds(scopes=1))
    assert memory.finish("a", Finished(0, 1, False), 0, 0)
    assert memory.finish("b", Finished(0, 1, False), 0, 0)
    assert memory.scope_count == 1
