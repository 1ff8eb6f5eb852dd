"""Tables of topics and groups are saved on a thread; what an answer speaks of is durable when it leaves, and nobody else waits."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.worlds.little_store import SteppedWorker

from orbitmq.broker.table_saving import Snapshots
from orbitmq.limits.broker import TABLE_RETRY_NS
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.store.config_files import PIECE_MEMBERS, ConfigFile
from orbitmq.store.files import OsFiles

SHAPE = {"defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}


@pytest.fixture
def slow(rig: Any) -> Any:
    """A rig whose tables are written when its worker makes a step."""
    rig.send("known")
    rig.broker.core.saving._worker = rig.worker = SteppedWorker()
    return rig


def put(rig: Any, topic: str, peer: Any) -> Any:
    fields = {name: str(value) for name, value in {"topic": topic, **SHAPE}.items()}
    answer = rig.give(request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields), peer)
    rig.broker.end_turn()
    return answer


def saved_topics(rig: Any) -> set[str]:
    table = json.loads((rig.root / "config" / "topics.json").read_bytes())
    return set(table["topicConfigTable"])


def test_the_answer_waits_for_the_thread_and_others_do_not(slow: Any) -> None:
    peer, other = slow.peer(), slow.peer()
    assert put(slow, "new", peer) is None
    assert peer.sent == []
    assert "new" not in saved_topics(slow), "nothing is written on the loop"
    slow.sent_ok("known", peer=other)
    assert slow.worker.step()
    assert [answer.code for answer in peer.take()] == [ResponseCode.SUCCESS]
    assert "new" in saved_topics(slow)


def test_changes_during_a_save_share_the_next_one(slow: Any) -> None:
    first, later = slow.peer(), [slow.peer() for _ in range(3)]
    put(slow, "first", first)
    for number, peer in enumerate(later):
        put(slow, f"later{number}", peer)
    assert slow.worker.step()
    assert len(first.take()) == 1
    assert [peer.sent for peer in later] == [[], [], []]
    assert "later0" not in saved_topics(slow)
    assert slow.worker.step()
    assert [len(peer.take()) for peer in later] == [1, 1, 1]
    assert not slow.worker.step()
    assert {"first", "later0", "later2"} <= saved_topics(slow)


def test_a_send_that_makes_its_topic_is_answered_when_the_topic_is_saved(slow: Any) -> None:
    peer, other = slow.peer(), slow.peer()
    assert slow.send("made", peer=peer) is None
    assert slow.send("made", peer=other) is not None, "the topic is there: this one does not wait"
    assert slow.worker.step()
    (answer,) = peer.take()
    assert answer.code == ResponseCode.SUCCESS
    assert "made" in saved_topics(slow)


def test_a_failure_is_told_to_who_waited_and_tried_again(slow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = slow.peer()

    def fails(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(OsFiles, "write_atomic", fails)
        put(slow, "new", peer)
        assert slow.worker.step()
        (answer,) = peer.take()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "could not be saved" in answer.remark
        assert not slow.worker.step(), "not at once"
    slow.clock.advance(TABLE_RETRY_NS // 1_000_000)
    slow.broker.tick()
    assert slow.worker.step()
    assert "new" in saved_topics(slow)


def test_what_is_being_saved_at_the_stop_is_saved_by_it(slow: Any) -> None:
    put(slow, "new", slow.peer())
    slow.broker.close()
    assert "new" in saved_topics(slow)
    put(slow, "newer", slow.peer())
    slow.broker.close()
    slow.worker.close()
    assert "newer" in saved_topics(slow), "an older state never replaces a newer one"
    slow.store.close()


def test_a_state_that_was_overtaken_is_not_written(tmp_path: Any) -> None:
    file = ConfigFile(OsFiles(), tmp_path / "table.json")
    snapshots = Snapshots(file)
    older, newer = snapshots.job(lambda: {"a": 1}), snapshots.job(lambda: {"a": 2})
    newer()
    older()
    assert file.load() == {"a": 2}


@pytest.mark.parametrize("count", [0, 1, PIECE_MEMBERS, PIECE_MEMBERS + 1, 3 * PIECE_MEMBERS])
def test_a_table_in_pieces_is_the_table(count: int) -> None:
    table = {
        "table": {f'"{number}\n': {"queues": {number: -1}, "list": [1, {"x": 2}]} for number in range(count)},
        "other": {"z": 1, "a": {}},
        "last": {f"k{number}": number for number in range(count)},
    }
    plain = msgspec.to_builtins(table, str_keys=True)
    whole = msgspec.json.format(msgspec.json.encode(plain, order="sorted"), indent=2) + b"\n"
    assert ConfigFile.encode(table) == whole
