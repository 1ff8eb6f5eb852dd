"""Pops at a broker that becomes a slave and a master again."""

from __future__ import annotations

from typing import Any

from tests.unit.broker.pop.conftest import Popper

from orbitmq.protocol.remoting.commands import ResponseCode


def test_nothing_is_popped_from_a_slave_and_pops_that_wait_end(rig: Any, popper: Popper) -> None:
    rig.sent_ok("T", b"first")
    assert popper.bodies() == [b"first"]
    assert popper.ask(pollTime=10_000) is None
    rig.appenders.detach()
    (answer,) = popper.answers()
    assert answer.code == ResponseCode.POLLING_TIMEOUT
    refused = popper.ask()
    assert refused is not None
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "ask the master" in refused.remark


def test_a_slave_stores_nothing_again(rig: Any, popper: Popper) -> None:
    rig.sent_ok("T", b"one")
    assert popper.bodies(invisibleTime=10_000) == [b"one"]
    rig.advance(1)
    rig.appenders.detach()
    end = rig.store.log.end
    rig.advance(120_000)
    assert rig.store.log.end == end
    assert rig.broker.rooms.pops.in_flight.message_count == 0


def test_what_was_in_flight_is_popped_anew_and_old_receipts_settle_nothing(rig: Any, popper: Popper) -> None:
    for body in (b"one", b"two"):
        rig.sent_ok("T", body)
    old = popper.pop()
    assert popper.ack(old[1]) == ResponseCode.SUCCESS
    rig.appenders.detach()
    rig.appenders.attach()
    rig.advance(1)
    again = popper.pop()
    assert [record.body for record, _, _ in again] == [b"one", b"two"], "acknowledged behind one that was not"
    assert popper.ack(old[0]) == ResponseCode.SUCCESS
    assert popper.committed() == 0
    for one in again:
        popper.ack(one)
    assert popper.committed() == 2


def test_what_a_checkpoint_covers_is_found_by_the_next_master(rig: Any, popper: Popper) -> None:
    rig.sent_ok("T", b"one")
    popper.pop(invisibleTime=60_000)
    rig.advance(20_000)
    pops = rig.broker.rooms.pops
    assert pops.checkpoints.stored_count == 1
    assert popper.committed() == 1
    for _ in range(2):
        rig.appenders.detach()
        assert pops.in_flight.message_count == 0
        rig.appenders.attach()
        assert pops.in_flight.message_count == 1
    assert popper.bodies() == [], "it is hidden still"
    rig.advance(60_000)
    assert popper.bodies() == [b"one"], "it came back once"
    rig.advance(1)
    assert popper.bodies() == []
