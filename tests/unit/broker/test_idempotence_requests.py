"""What senders of idempotent messages ask beside their sends: which scopes are known, and that an epoch is finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.idempotence.finished import Finished
from orbitmq.broker.idempotence.identity import SendIdentity
from orbitmq.broker.idempotence.journal import (
    JOURNAL_FILE,
    FinishedBlock,
    KeyJournal,
    PositionBlock,
    decode_blocks,
    encode_finished,
    encode_position,
)
from orbitmq.broker.idempotence.memory import KeyBounds, KeyMemory, pack
from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.idempotence_bodies import FinishEpoch, ScopeList, ScopeQuery, ScopeView, topic_mark
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
    rig.sent_ok("T", b"x", once("~job@a"))
    assert [scope.scope for scope in find(rig, "~job@").scopes] == ["~job@a"]


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
    memory = KeyMemory(KeyBounds())
    for name, brief in (("job", True), ("kept", False)):
        memory.keep(SendIdentity(name, 0, 1), pack(1, 1, 1), 0, 0)
        assert memory.finish(name, Finished(0, 7, brief), 1_000)
    memory.expire(HOUR_MS, 0)
    assert len(memory.finished) == 2
    assert memory.expire(HOUR_MS + 1_000, 0)
    assert [scope.name for scope in memory.scopes("", 9)] == ["kept"]
    assert memory.used_bytes == 0
    with pytest.raises(Refusal):
        memory.find(SendIdentity("kept", 0, 1), "T")


def test_a_scope_that_is_used_again_stays():
    memory = KeyMemory(KeyBounds())
    memory.finish("job", Finished(0, 7, True), 0)
    memory.keep(SendIdentity("job", 1, 1), pack(1, 1, 1), 0, 0)
    memory.expire(2 * HOUR_MS, 0)
    assert memory.find(SendIdentity("job", 1, 1), "T") == pack(1, 1, 1)


def test_scopes_of_a_clock_that_was_ahead_are_forgotten_as_if_used_now():
    ahead_ms = 10 * 365 * 24 * HOUR_MS
    memory = KeyMemory(KeyBounds(lasting_idle_ms=2 * HOUR_MS))
    for name in ("a", "b"):
        memory.keep(SendIdentity(f"job/{name}", 0, 1), pack(0, 0, 0), ahead_ms, 0)
        assert memory.finish(f"job/{name}", Finished(0, 7, True), ahead_ms)
    memory.keep(SendIdentity("job/c", 0, 1), pack(0, 0, 0), ahead_ms, 0)
    memory.keep(SendIdentity("job/d", 0, 1), pack(0, 0, 0), 0, 0)
    memory.keep(SendIdentity("job/c", 0, 2), pack(0, 1, 0), HOUR_MS, 0)  # used again by the right clock
    assert not memory.expire(HOUR_MS, 0)
    assert memory.expire(2 * HOUR_MS, 0)
    assert [scope.name for scope in memory.scopes("job/", 9)] == ["job/c"]
    assert memory.expire(3 * HOUR_MS, 0)
    assert memory.scope_count == 0


def test_the_log_says_which_scopes_lie_in_the_future(rig, caplog):
    rig.clock.set_wall(rig.clock.now_ms() + 1_000 * HOUR_MS)
    rig.sent_ok("T", b"x", once())
    rig.clock.set_wall(rig.clock.now_ms() - 1_000 * HOUR_MS)
    rig.reopen()
    rig.clock.advance(HOUR_MS - 1)
    rig.sent_ok("T", b"plain")
    assert "scopes of idempotent sends" not in caplog.text, "the clock may be put right"
    rig.clock.advance(1)
    rig.sent_ok("T", b"plain")
    assert "1 scopes of idempotent sends were used later than now" in caplog.text


@pytest.mark.parametrize("years", [-50, 4])
@pytest.mark.parametrize("wrong_for_ms", [1_000, HOUR_MS - 1_000])
def test_a_start_with_a_wrong_time_forgets_no_epoch(rig, years, wrong_for_ms):
    rig.sent_ok("T", b"x", once("job/1"))
    rig.sent_ok("T", b"x", once("job/2"))
    finish(rig, "job/2")
    rig.close()
    right_ms = rig.clock.now_ms()
    rig.clock.set_wall(right_ms + years * 365 * 24 * HOUR_MS)
    rig.open()
    rig.sent_ok("T", b"plain")
    rig.clock.advance(wrong_for_ms)
    rig.sent_ok("T", b"plain")
    rig.clock.set_wall(right_ms + wrong_for_ms)
    rig.sent_ok("T", b"plain")
    assert "orbitmqRepeat" in dict(rig.sent_ok("T", b"x", once("job/1")).fields)
    assert [(scope.name, scope.finished_epoch) for scope in rig.idempotence.memory.scopes("job/2", 9)] == [("job/2", 0)]


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


@pytest.mark.parametrize("mark", [topic_mark("T"), "T"])
def test_a_job_can_be_run_again_when_its_topic_was_deleted(rig, mark):
    mine, others, batch = f"job/0/{mark}@b:1", f"job/0/{topic_mark('Else')}@b:1", f"job/*/{mark}@b:1"
    for topic, scope in (("T", mine), ("Else", others)):
        rig.sent_ok(topic, b"x", once(scope))
        assert finish(rig, scope).code == ResponseCode.SUCCESS
    assert finish(rig, batch).code == ResponseCode.SUCCESS
    assert rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == ResponseCode.SUCCESS
    for _ in range(2):
        assert find(rig, f"job/0/{mark}@").scopes == []
        assert [scope.scope for scope in find(rig, f"job/0/{topic_mark('Else')}@").scopes] == [others]
        rig.reopen()
    assert "orbitmqRepeat" not in rig.sent_ok("T", b"x", once(mine)).fields
    assert finish(rig, batch).code == ResponseCode.SUCCESS
    rig.reopen()
    rig.idempotence._shorten_from_bytes = -(1 << 30)
    rig.idempotence.begin_sync()
    rig.idempotence.datasync()
    rig.reopen()
    assert [scope.scope for scope in find(rig, f"job/0/{mark}@").scopes] == [mine], "it was finished after the deletion"


def test_a_shorter_journal_keeps_the_ends_that_still_say_something(tmp_path: Path):
    journal = KeyJournal(OsFiles(), tmp_path / JOURNAL_FILE)
    last = encode_position(PositionBlock(0, -1, 0, True))
    journal.append(
        [encode_finished("job", Finished(4, 7, True), 1), encode_finished("gone", Finished(4, 7, True), 1), last]
    )
    journal.shorten((), {("job", 4)}, b"", last)
    journal.close()
    blocks = [block for block, _ in decode_blocks((tmp_path / JOURNAL_FILE).read_bytes())]
    assert blocks == [FinishedBlock("job", Finished(4, 7, True), 1), PositionBlock(0, -1, 0, True)]


def test_what_is_finished_has_a_bound_of_its_own_and_takes_no_room(monkeypatch):
    monkeypatch.setattr("orbitmq.broker.idempotence.finished.ONCE_FINISHED_MAX", 2)
    memory = KeyMemory(KeyBounds(scopes=1))
    for number in range(5):
        name = f"job{number}/0/t@a"
        memory.make_room(SendIdentity(name, 0, 1), 1, 0, 0)
        memory.keep(SendIdentity(name, 0, 1), pack(1, 1, 1), 0, 0)
        assert memory.finish(name, Finished(0, 1, False), 0)
    assert (memory.scope_count, memory.used_bytes) == (0, 0)
    assert [name for name, _ in memory.finished] == ["job3/0/t@a", "job4/0/t@a"]
    assert not memory.scopes("job0/0/t@", 9)


def test_who_finishes_and_never_sends_takes_no_room_without_bound(rig, monkeypatch):
    monkeypatch.setattr("orbitmq.broker.idempotence.finished.ONCE_FINISHED_MAX", 3)
    monkeypatch.setattr("orbitmq.broker.idempotence.idempotence.ONCE_FINISHED_MAX", 5)
    for number in range(20):
        assert finish(rig, f"job{number}/0/t@a", brief=number % 2 == 0).code == ResponseCode.SUCCESS
    memory = rig.idempotence.memory
    assert (len(memory.finished), len(memory._names.beginning("job19/0/t@"))) == (3, 1)
    assert len(memory._names._beginnings) == 3
    assert len(rig.idempotence._unsaved_ends) == 5, "blocks for the journal, which is written with new messages"


# --- a batch of many partitions ---------------------------------------------------------------------------------------


def partition(part: int, job: str = "job") -> str:
    return f"{job}/{part}/t@a:4"


def test_one_record_stands_for_all_partitions_of_a_batch(rig):
    for part in range(5):
        rig.sent_ok("T", b"x", once(partition(part)))
        if part < 3:
            finish(rig, partition(part), mark=part)
    rig.sent_ok("T", b"x", once(partition(0, "other")))
    assert finish(rig, "job/*/t@a:4", mark=9).code == ResponseCode.SUCCESS
    for reopened in (False, True):
        if reopened:
            rig.reopen()
        memory = rig.idempotence.memory
        assert list(memory.finished) == [("job/*/t@a:4", Finished(0, 9, False))]
        assert (memory.scope_count, memory.key_count) == (1, 1)
        assert rig.send("T", b"x", once(partition(4))).code == ResponseCode.STALE_EPOCH
        assert rig.send("T", b"x", once(partition(99))).code == ResponseCode.STALE_EPOCH
    for prefix in ("job/7/t@", partition(7)):
        assert find(rig, prefix).scopes == [ScopeView(scope=partition(7), epoch=1, keys=0, finished_epoch=0)]
    assert finish(rig, partition(2), mark=77).code == ResponseCode.SUCCESS, "only the whole can be compared"
    assert finish(rig, "job/*/t@a:4", mark=9).code == ResponseCode.SUCCESS
    assert finish(rig, "job/*/t@a:4", mark=8).code == ResponseCode.STALE_EPOCH
    rig.sent_ok("T", b"x", once(partition(0, "other")))
    rig.sent_ok("T", b"x", once(partition(4), epoch=1))
    assert find(rig, "job/4/t@").scopes == [ScopeView(scope=partition(4), epoch=1, keys=1, finished_epoch=0)]


def test_a_partition_that_has_gone_on_is_not_ended_with_the_batch_before(rig):
    rig.sent_ok("T", b"x", once(partition(0), epoch=1))
    finish(rig, "job/*/t@a:4", epoch=0)
    rig.sent_ok("T", b"x", once(partition(0), epoch=1))
    assert rig.idempotence.repeat_count == 1


def test_twenty_thousand_partitions_of_finished_batches_stop_nobody():
    """A stream with 200 partitions whose every batch is a job of its own."""
    memory = KeyMemory(KeyBounds(scopes=400))
    for batch in range(100):
        for part in range(200):
            name = partition(part, f"batch-{batch}")
            memory.make_room(SendIdentity(name, 0, 1), 1, 0, 0)
            memory.keep(SendIdentity(name, 0, 1), pack(1, 1, 1), 0, 0)
            assert memory.finish(name, Finished(0, 1, False), 0)
        assert memory.finish(f"batch-{batch}/*/t@a:4", Finished(0, 1, False), 0)
    memory.make_room(SendIdentity("somebody", 0, 1), 1, 0, 0)
    assert len(memory.finished) == 100
    assert [scope.name for scope in memory.scopes("batch-7/3/t@", 9)] == [partition(3, "batch-7")]
