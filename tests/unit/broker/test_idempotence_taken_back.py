"""What was learnt of idempotent sends before the log confirmed them: kept whatever their senders hear, forgotten when the log is cut."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.idempotence.identity import SendIdentity, identity_in_log
from orbitmq.broker.idempotence.memory import KeyBounds
from orbitmq.broker.refusal import Refusal
from orbitmq.clock import ManualClock
from orbitmq.protocol.properties import encode_properties
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import OsFiles

SIZE = 100


def entry(number: int, scope: str, epoch: int, key: str) -> Dispatched:
    """The record of a send, `SIZE` bytes long and the `number`th of the log."""
    said = {"UNIQ_KEY": key, "ORBITMQ_SCOPE": scope, "ORBITMQ_EPOCH": str(epoch), "ORBITMQ_ONCE_KEY": key}
    properties = encode_properties(said)
    return Dispatched(number * SIZE, SIZE, "T", 0, number, 0, 1_000 + number, key, None, 0, 0, properties)


def identity(sent: Dispatched) -> SendIdentity:
    found = identity_in_log(sent)
    assert found is not None
    return found[0]


def sends_at(path: Path) -> Idempotence:
    path.mkdir(exist_ok=True)
    return Idempotence(OsFiles(), path, ManualClock(), KeyBounds())


def remembered(idempotence: Idempotence) -> object:
    """Everything that decides about the next sends."""
    memory = idempotence.memory
    scopes = {
        name: [(keys.epoch, sorted(keys.items())) for keys in (scope.current, scope.previous) if keys is not None]
        for name, scope in memory._lasting.items()
    }
    return scopes, memory.key_count, memory.used_bytes, memory.scope_count


def learnt(path: Path, entries: Sequence[Dispatched]) -> Idempotence:
    """A copy, which only hears what the log says."""
    copy = sends_at(path)
    copy.apply(entries)
    return copy


@pytest.fixture
def here(tmp_path: Path) -> Idempotence:
    return sends_at(tmp_path / "here")


def send(here: Idempotence, sent: Dispatched) -> bool:
    """As admission does; False for a repeat, or where the epoch is over."""
    try:
        if here.admit_one(identity(sent), "T", 0) is not None:
            return False
    except Refusal:
        return False
    here.sent(identity(sent), sent, 0)
    return True


def test_a_repeat_of_what_was_cut_off_is_a_first_send(here: Idempotence) -> None:
    kept, cut = entry(0, "s", 1, "a"), entry(1, "s", 1, "b")
    assert send(here, kept)
    assert send(here, cut)
    here.apply([kept])
    assert not send(here, cut), "whatever its sender hears: it may be in the log"
    here.take_back(cut.physical_offset)
    assert send(here, cut)
    assert not send(here, kept)


def test_an_epoch_that_began_with_what_was_cut_off_never_was(here: Idempotence) -> None:
    log = [entry(0, "s", 1, "a"), entry(1, "s", 2, "b")]
    for one in log:
        assert send(here, one)
    here.apply(log)
    assert send(here, entry(2, "s", 3, "c"))
    assert not send(here, entry(9, "s", 1, "x")), "its epoch is over"
    assert here.memory.key_count == 2
    here.take_back(2 * SIZE)
    assert not send(here, log[0]), "a repeat again"
    assert send(here, entry(2, "s", 1, "x"))
    assert here.memory.key_count == 3


def test_a_scope_that_began_with_what_was_cut_off_never_was(here: Idempotence) -> None:
    assert send(here, entry(0, "s", 7, "a"))
    here.take_back(0)
    assert (here.memory.scope_count, here.memory.key_count, here.memory.used_bytes) == (0, 0, 0)
    assert send(here, entry(0, "s", 3, "a"))


def test_keys_that_come_back_are_in_the_journal(tmp_path: Path, here: Idempotence) -> None:
    """They were written while an epoch that was cut off later had ended theirs."""
    log = [entry(0, "s", 1, "a"), entry(1, "s", 2, "b")]
    for one in log:
        send(here, one)
    here.apply(log)
    send(here, entry(2, "s", 3, "c"))
    here.write()
    here.take_back(2 * SIZE)
    content = (tmp_path / "here" / "orbitmq.once").read_bytes()
    digests = [identity(one).digest.to_bytes(16) for one in log]
    assert all(digest in content for digest in digests)


def test_what_an_epoch_ended_is_given_back_when_the_log_confirms_it(here: Idempotence) -> None:
    log = [entry(epoch, "s", epoch, "k") for epoch in range(4)]
    for one in log:
        assert send(here, one)
    assert here.memory.keeps_aside
    here.apply(log)
    assert not here.memory.keeps_aside
    while here.memory._going:
        here.memory.give_back(1_000)
    assert here.memory.key_count == 2


@pytest.mark.parametrize("seed", range(60))
def test_after_a_cut_a_broker_knows_what_a_copy_of_the_log_knows(tmp_path: Path, here: Idempotence, seed: int) -> None:
    rng = random.Random(seed)
    log: list[Dispatched] = []
    applied = 0
    for step in range(120):
        number = len(log)
        one = entry(number, rng.choice("ab"), step // 12 + rng.choice((0, 0, 0, 1, 2)), rng.choice("klmnop"))
        if send(here, one):
            log.append(one)
        if rng.random() < 0.3:
            upto = rng.randint(applied, len(log))
            here.apply(log[applied:upto])
            applied = upto
        if rng.random() < 0.1:
            left = rng.randint(applied, len(log))
            if rng.random() < 0.5:
                here.take_back(left * SIZE)
            else:  # a write that failed: told in the order of the sends
                for lost in log[left:]:
                    here.failed(identity(lost), lost, 0)
            del log[left:]
            copy = learnt(tmp_path / f"copy{step}", log)
            assert remembered(here) == remembered(copy)
            copy.close()
    here.apply(log[applied:])
    assert remembered(here) == remembered(learnt(tmp_path / "copy", log))
    assert not here.memory.keeps_aside
