"""Sends with a window: what is a repeat and until when, what the memory of a service is bounded by, what becomes of it in restarts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.little_store import close_as_killed

from orbitmq.broker.idempotence.epoch_keys import TABLE_KEYS
from orbitmq.broker.idempotence.identity import SendIdentity
from orbitmq.broker.idempotence.memory import KeyBounds, KeyMemory, pack
from orbitmq.broker.idempotence.packed_keys import PACKED_KEY_BYTES
from orbitmq.broker.idempotence.windows import end_of
from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.idempotence_bodies import FinishEpoch

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def once(
    key: str = "order-42", window: Any = HOUR_MS, *, scope: str = "^T", message_id: str = "U", **more: str
) -> dict[str, str]:
    return {
        "UNIQ_KEY": message_id.ljust(32, "0"), "ORBITMQ_SCOPE": scope, "ORBITMQ_ONCE_WINDOW": str(window), "ORBITMQ_ONCE_KEY": key, **more,
    }  # fmt: skip


def send(rig: Any, body: bytes = b"x", values: dict[str, str] | None = None) -> dict[str, str]:
    return dict(rig.sent_ok("T", body, values or once()).fields)


# --- the window -----------------------------------------------------------------------------------------------------


def test_a_repeat_within_the_window_is_told_the_first_receipt_and_not_stored(rig):
    first = send(rig, b"one")
    rig.clock.advance(HOUR_MS - 1)
    again = send(rig, b"one", once(message_id="OTHER"))
    assert again.pop("orbitmqRepeat") == "stored"
    assert again == first
    assert len(rig.records("T")) == 1


def test_after_the_window_it_is_a_new_message_which_has_a_window_of_its_own(rig):
    first = send(rig, b"one")
    rig.clock.advance(HOUR_MS)
    second = send(rig, b"two", once(message_id="OTHER"))
    assert "orbitmqRepeat" not in second
    assert second["queueOffset"] != first["queueOffset"]
    rig.clock.advance(HOUR_MS - 1)
    assert send(rig)["queueOffset"] == second["queueOffset"]
    assert [record.body for record in rig.records("T")] == [b"one", b"two"]


def test_the_window_is_that_of_the_first_send(rig):
    send(rig, values=once(window=HOUR_MS))
    rig.clock.advance(HOUR_MS - 1)
    assert "orbitmqRepeat" in send(rig, values=once(window=1_000))
    rig.clock.advance(1)
    assert "orbitmqRepeat" not in send(rig, values=once(window=1_000))
    rig.clock.advance(1_000)
    assert "orbitmqRepeat" not in send(rig, values=once(window=DAY_MS)), (
        "the shorter one counts, though the longer one's keys are there"
    )


@pytest.mark.parametrize("other", [{"key": "order-43"}, {"scope": "^T/billing"}, {"key": "ORDER-42"}])
def test_another_key_or_scope_is_another_message(rig, other):
    send(rig)
    assert "orbitmqRepeat" not in send(rig, values=once(**other))


def test_the_same_key_for_another_topic_is_another_message(rig):
    rig.sent_ok("T", b"x", once(scope="^T"))
    rig.sent_ok("T2", b"x", once(scope="^T2"))
    assert len(rig.records("T2")) == 1


def test_a_delayed_message_is_recognised_before_it_is_delivered(rig):
    send(rig, values=once(DELAY="3"))
    again = send(rig, values=once(DELAY="3"))
    assert (again["orbitmqRepeat"], "orbitmqDeliverMs" in again) == ("stored", True)


def test_a_deleted_topic_ends_its_keys(rig):
    send(rig)
    rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert "orbitmqRepeat" not in send(rig)


@pytest.mark.parametrize("kind", ["stopped", "killed", "without its file"])
def test_keys_outlive_the_process(rig, kind):
    first = send(rig)
    rig.clock.advance(1_000)
    if kind == "stopped":
        rig.reopen()
    else:
        close_as_killed(rig.store)
        if kind == "without its file":
            (rig.root / "orbitmq.once").unlink(missing_ok=True)
        rig.open()
    rig.clock.advance(HOUR_MS - 1_001)
    assert send(rig)["queueOffset"] == first["queueOffset"]
    rig.clock.advance(1)
    assert "orbitmqRepeat" not in send(rig)


def test_what_has_left_the_log_is_remembered_until_its_keys_end(rig, monkeypatch):
    """Its record says no more when it was sent: it counts for the window, and for a quarter of it at most beyond."""
    first = send(rig)
    monkeypatch.setattr(type(rig.store), "record_at", lambda *_: None)
    rig.clock.advance(HOUR_MS - 1)
    again = send(rig, values=once(message_id="OTHER"))
    assert (again["queueOffset"], again["transactionId"]) == (first["queueOffset"], "OTHER".ljust(32, "0"))
    rig.clock.advance(HOUR_MS // 4 + 1)
    assert "orbitmqRepeat" not in send(rig)


@pytest.mark.parametrize("window_ms", [1_000, 1_001, 60_000, HOUR_MS, DAY_MS, 3 * DAY_MS, 10**12])
@pytest.mark.parametrize("sent_ms", [0, 1, 1_700_000_000_000, 1_700_000_000_123])
def test_keys_end_after_their_window_and_at_most_a_quarter_later(sent_ms, window_ms):
    assert sent_ms + window_ms <= end_of(sent_ms, window_ms) < sent_ms + window_ms * 5 // 4 + 1


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ORBITMQ_ONCE_WINDOW": "999"}, "at least 1000, not '999'"),
        ({"ORBITMQ_ONCE_WINDOW": "0"}, "at least 1000"),
        ({"ORBITMQ_ONCE_WINDOW": "-5"}, "at least 1000"),
        ({"ORBITMQ_ONCE_WINDOW": "a day"}, "is milliseconds"),
        ({"ORBITMQ_ONCE_WINDOW": "9" * 400}, "is milliseconds"),
        ({"ORBITMQ_ONCE_WINDOW": str(72 * HOUR_MS + 1)}, "idempotenceReservedTime"),
        ({"ORBITMQ_SCOPE": "T"}, "goes with the ORBITMQ_SCOPE '^T'"),
        ({"ORBITMQ_SCOPE": "^T2"}, "one that begins with '^T/'"),
        ({"ORBITMQ_EPOCH": "3"}, "give one of them"),
        ({"ORBITMQ_ONCE_KEY": "k" * 1_025}, "at most 1024 characters"),
        ({"ORBITMQ_SCOPE": "^T/" + "s" * 253}, "more than 255 bytes"),
    ],
)  # fmt: skip
def test_what_is_meant_otherwise_is_refused_in_words(rig, changes, says):
    answer = rig.send("T", b"x", once() | changes)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert says in answer.remark
    assert rig.records("T") == []


@pytest.mark.parametrize("missing", ["ORBITMQ_SCOPE", "ORBITMQ_ONCE_WINDOW"])
def test_half_of_it_is_refused(rig, missing):
    values = {name: value for name, value in once().items() if name != missing}
    assert rig.send("T", b"x", values).code == ResponseCode.MESSAGE_ILLEGAL


def test_the_longest_window_is_what_the_broker_keeps_scopes_for(rig):
    rig.once_bounds = KeyBounds(lasting_idle_ms=HOUR_MS)
    rig.reopen()
    send(rig, values=once(window=HOUR_MS))
    assert rig.send("T", b"x", once(window=HOUR_MS + 1)).code == ResponseCode.MESSAGE_ILLEGAL


def test_a_batch_is_told_to_come_one_by_one(rig):
    for values in (
        [once("a"), once("b")],
        [once("a"), {"ORBITMQ_SCOPE": "^T", "ORBITMQ_EPOCH": "1", "ORBITMQ_ONCE_KEY": "b"}],
    ):
        body = encode_batch([BatchItem(0, b"x", encode_properties(each)) for each in values])
        answer = rig.send("T", body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.records("T") == []


def test_an_epoch_of_it_cannot_be_finished(rig):
    send(rig)
    answer = rig.call(RequestCode.FINISH_EPOCH, {}, FinishEpoch(scope="^T", epoch=1, mark=0, brief=True).encode())
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "orbitmqRepeat" in send(rig)


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_an_endless_stream_of_keys_takes_the_memory_of_its_window(rig):
    """Ten windows long, a key each minute: never more than five quarters of an hour's keys are there."""
    counts = []
    for minute in range(600):
        send(rig, values=once(f"order-{minute}"))
        rig.clock.advance(60_000)
        counts.append(rig.idempotence.memory.key_count)
    assert counts[59] == 60
    assert max(counts) <= 60 * 5 // 4 + 1
    rig.clock.advance(2 * HOUR_MS)
    rig.sent_ok("T", b"plain")
    memory = rig.idempotence.memory
    assert (memory.key_count, memory.scope_count, memory.used_bytes) == (0, 0, 0)
    assert len(rig.records("T")) == 601


def test_a_full_memory_refuses_new_keys_until_old_ones_end_and_answers_repeats(rig):
    rig.once_bounds = KeyBounds(memory_bytes=20_000)
    rig.reopen()
    stored = 0
    while (answer := rig.send("T", b"x", once(f"order-{stored}"))).code == ResponseCode.SUCCESS:
        stored += 1
    assert 70 < stored < 90
    assert answer.code == ResponseCode.IDEMPOTENCE_FULL
    assert all(words in answer.remark for words in ("'^T' has", "take shorter windows", "idempotenceMemoryMax"))
    assert "orbitmqRepeat" in send(rig, values=once("order-0"))
    rig.sent_ok("other", b"x", once(scope="^other"))
    name, share = rig.idempotence.memory.fullest
    assert name == "^T"
    assert share > 0.9
    rig.clock.advance(HOUR_MS * 5 // 4)
    assert "orbitmqRepeat" not in send(rig, values=once(f"order-{stored}"))


def test_a_memory_of_many_keys_finds_each_and_counts_what_they_take():
    memory = KeyMemory(KeyBounds())
    count = 3 * TABLE_KEYS
    for digest in range(1, count + 1):
        identity = SendIdentity("^T", 0, digest, DAY_MS)
        memory.keep(identity, pack(digest, digest, 0), digest, 0)
    assert all(
        memory.find(SendIdentity("^T", 0, digest, DAY_MS), "T", count) == pack(digest, digest, 0)
        for digest in range(1, count + 1)
    )
    assert memory.find(SendIdentity("^T", 0, count + 1, DAY_MS), "T", count) is None
    assert memory.used_bytes > 2 * TABLE_KEYS * PACKED_KEY_BYTES
    while memory.expire(2 * DAY_MS, 0):
        pass
    assert (memory.key_count, memory.used_bytes, list(memory.windows)) == (0, 0, [])


def test_a_send_that_did_not_reach_the_log_is_forgotten():
    memory = KeyMemory(KeyBounds())
    identity = SendIdentity("^T", 0, 7, HOUR_MS)
    keys = memory.keep(identity, pack(100, 1, 0), 0, 0, is_confirmed=False)
    assert keys is not None
    assert memory.is_live(keys)
    memory.take_back(keys, 7, pack(100, 1, 0))
    assert memory.find(identity, "T", 0) is None
    assert memory.key_count == 0


def test_scopes_with_windows_are_counted_as_others_are():
    memory = KeyMemory(KeyBounds(scopes=4))
    for number in range(3):
        identity = SendIdentity(f"^{number}", 0, 1, HOUR_MS)
        memory.make_room(identity, 1, 0, 0)
        memory.keep(identity, pack(number, 0, 0), 0, 0)
    with pytest.raises(Refusal, match="3 scopes"):
        memory.make_room(SendIdentity("^more", 0, 1, HOUR_MS), 1, 0, 0)
    memory.make_room(SendIdentity("^more", 0, 1, HOUR_MS), 1, 2 * HOUR_MS, 0)


def test_a_clock_that_was_ahead_leaves_no_keys_for_a_year(rig):
    now_ms = rig.clock.now_ms()
    rig.clock.set_wall(now_ms + 365 * DAY_MS)
    send(rig, values=once("early"))
    rig.clock.set_wall(now_ms)
    send(rig, values=once("now"))
    assert "orbitmqRepeat" in send(rig, values=once("early"))
    rig.clock.advance(2 * HOUR_MS)
    rig.sent_ok("T", b"plain")
    rig.clock.advance(5 * DAY_MS)
    rig.sent_ok("T", b"plain")
    rig.clock.advance(HOUR_MS)
    assert "orbitmqRepeat" not in send(rig, values=once("early"))


@pytest.mark.parametrize("years", [-50, 4])
@pytest.mark.parametrize("wrong_for_ms", [1_000, HOUR_MS - 1_000])
def test_a_start_with_a_wrong_time_forgets_no_key(rig, years, wrong_for_ms):
    """The time is right again within the hour, as of a machine without a battery."""
    first = send(rig, values=once(window=DAY_MS))
    rig.close()
    right_ms = rig.clock.now_ms()
    rig.clock.set_wall(right_ms + years * 365 * DAY_MS)
    rig.open()
    send(rig, values=once("while it was wrong"))
    rig.clock.advance(wrong_for_ms)
    rig.sent_ok("T", b"plain")
    rig.clock.set_wall(right_ms + wrong_for_ms)
    rig.sent_ok("T", b"plain")
    assert send(rig, values=once(window=DAY_MS))["queueOffset"] == first["queueOffset"]
    rig.reopen()
    assert send(rig, values=once(window=DAY_MS))["queueOffset"] == first["queueOffset"]


def test_a_clock_that_is_behind_for_days_forgets_no_key_when_it_is_put_right(rig):
    first = send(rig, values=once(window=DAY_MS))
    rig.close()
    right_ms = rig.clock.now_ms()
    rig.clock.set_wall(right_ms - 50 * 365 * DAY_MS)
    rig.open()
    for _ in range(5):
        rig.clock.advance(4 * HOUR_MS)
        rig.sent_ok("T", b"plain")
    rig.clock.set_wall(right_ms + 20 * HOUR_MS)
    assert send(rig, values=once(window=DAY_MS))["queueOffset"] == first["queueOffset"]


def test_keys_are_forgotten_an_hour_after_a_start(rig):
    send(rig)
    rig.close()
    rig.clock.advance(DAY_MS)
    rig.open()
    rig.sent_ok("T", b"plain")
    assert rig.idempotence.memory.key_count == 1
    rig.clock.advance(HOUR_MS)
    rig.sent_ok("T", b"plain")
    assert rig.idempotence.memory.key_count == 0
