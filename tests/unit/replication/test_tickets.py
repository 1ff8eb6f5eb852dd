"""Tickets: who gets one, and for what it is good."""

from __future__ import annotations

import pytest

from orbitmq.limits.replication import COPIES_MAX, SLAVE_NAME_CHARS_MAX, TICKET_MS, TICKETS_MAX
from orbitmq.replication.tickets import TicketBearer, TicketRefusal, Tickets
from orbitmq.units import NS_PER_MS

SLAVE = TicketBearer("broker-a", 1, "store-of-1")


def secret(number: int = 0) -> bytes:
    return number.to_bytes(32, "big")


def tickets(known: dict[int, str] | None = None) -> Tickets:
    return Tickets("broker-a", "our-store", known)


def test_a_ticket_is_good_once() -> None:
    door = tickets()
    assert door.issue(SLAVE, secret(), 0) is None
    assert door.redeem(secret(), 5) == SLAVE
    assert door.redeem(secret(), 6) is TicketRefusal.UNKNOWN


def test_a_ticket_is_good_for_a_while() -> None:
    door = tickets()
    door.issue(SLAVE, secret(1), 7)
    assert door.redeem(secret(1), 6 + TICKET_MS * NS_PER_MS) == SLAVE
    door.issue(SLAVE, secret(2), 7)
    assert door.redeem(secret(2), 7 + TICKET_MS * NS_PER_MS) is TicketRefusal.EXPIRED


def test_of_a_slave_only_the_last_ticket_is_good() -> None:
    door = tickets()
    door.issue(SLAVE, secret(1), 0)
    door.issue(SLAVE, secret(2), 0)
    assert door.redeem(secret(1), 1) is TicketRefusal.UNKNOWN
    assert door.redeem(secret(2), 1) == SLAVE


@pytest.mark.parametrize(
    ("bearer", "refusal"),
    [
        (SLAVE._replace(group="broker-b"), TicketRefusal.OTHER_GROUP),
        (SLAVE._replace(group=""), TicketRefusal.BAD_NAME),
        (SLAVE._replace(store=""), TicketRefusal.BAD_NAME),
        (SLAVE._replace(store="x" * (SLAVE_NAME_CHARS_MAX + 1)), TicketRefusal.BAD_NAME),
        (SLAVE._replace(slave_id=0), TicketRefusal.BAD_ID),
        (SLAVE._replace(slave_id=-1), TicketRefusal.BAD_ID),
        (SLAVE._replace(store="our-store"), TicketRefusal.OWN_STORE),
        (SLAVE._replace(slave_id=2), TicketRefusal.OTHER_STORE),
    ],
)
def test_who_gets_none(bearer: TicketBearer, refusal: TicketRefusal) -> None:
    door = tickets({2: "store-of-2"})
    assert door.issue(bearer, secret(), 0) is refusal
    assert door.redeem(secret(), 1) is TicketRefusal.UNKNOWN


def test_an_id_belongs_to_the_store_that_came_first() -> None:
    door = tickets()
    door.issue(SLAVE, secret(1), 0)
    other = SLAVE._replace(store="another")
    assert door.issue(other, secret(2), 0) is TicketRefusal.OTHER_STORE
    assert dict(door.stores) == {1: "store-of-1"}
    assert door.forget(1)
    assert not door.forget(1)
    assert door.redeem(secret(1), 1) is TicketRefusal.UNKNOWN  # it was for the store that was forgotten
    assert door.issue(other, secret(2), 0) is None


def test_there_are_so_many_slaves() -> None:
    door = tickets({number: f"store-of-{number}" for number in range(2, COPIES_MAX + 2)})
    assert door.issue(SLAVE, secret(), 0) is TicketRefusal.TOO_MANY


def test_there_are_so_many_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.replication.tickets.COPIES_MAX", 1_000)
    door = tickets()
    for number in range(1, TICKETS_MAX + 1):
        assert door.issue(TicketBearer("broker-a", number, f"store-{number}"), secret(number), number) is None
    assert door.issue(TicketBearer("broker-a", 500, "store"), secret(500), 9) is TicketRefusal.TOO_MANY
    assert door.issue(TicketBearer("broker-a", 1, "store-1"), secret(501), 9) is None  # in the place of its last one
    over = 3 + TICKET_MS * NS_PER_MS
    assert door.issue(TicketBearer("broker-a", 500, "store"), secret(502), over) is None


def test_a_secret_has_its_size() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        tickets().issue(SLAVE, b"short", 0)
