"""Pulls that wait for the disk or for their connection: bounded, in turn, and nothing read for who does not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from orbitmq.broker import cold_pulls
from orbitmq.broker.cold_pulls import ColdPulls


class SlowPeer:
    """A connection that says whether it takes its answers."""

    def __init__(self) -> None:
        self.writable = True
        self.calls: list[Callable[[], None]] = []

    @property
    def connection(self) -> SlowPeer:
        return self

    def when_writable(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def takes_again(self) -> None:
        self.writable = True
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class CallOf:
    """One of the calls on a connection."""

    def __init__(self, connection: SlowPeer) -> None:
        self.connection = connection

    @property
    def writable(self) -> bool:
        return self.connection.writable

    def when_writable(self, call: Callable[[], None]) -> None:
        self.connection.when_writable(call)


class Pull(NamedTuple):
    peer: Any
    number: int


class Reader:
    def __init__(self) -> None:
        self.read: list[int] = []
        self.places: ColdPulls[Any] = ColdPulls(self.run)

    def run(self, pull: Pull) -> None:
        if self.places.begin(pull.peer):
            self.read.append(pull.number)
        else:
            assert self.places.wait(pull)


def test_two_of_a_connection_are_read_and_the_rest_wait_in_order() -> None:
    reader, peer = Reader(), SlowPeer()
    for number in range(5):
        reader.run(Pull(peer, number))
    assert (reader.read, reader.places.waiting_count) == ([0, 1], 3)
    reader.places.end(peer)
    assert reader.read == [0, 1, 2]
    reader.places.end(peer)
    reader.places.end(peer)
    assert reader.read == [0, 1, 2, 3, 4]
    reader.places.end(peer)
    reader.places.end(peer)
    assert reader.places.waiting_count == 0


def test_nothing_is_read_for_who_does_not_read() -> None:
    reader, slow, other = Reader(), SlowPeer(), SlowPeer()
    for number in range(4):
        reader.run(Pull(slow, number))
    slow.writable = False
    reader.places.end(slow)
    reader.places.end(slow)
    assert reader.read == [0, 1]
    reader.run(Pull(other, 9))
    assert reader.read == [0, 1, 9], "others are served meanwhile"
    slow.takes_again()
    assert reader.read == [0, 1, 9, 2, 3]


def test_in_all_as_many_as_the_bound_says_and_connections_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_pulls, "COLD_PULLS_AT_ONCE_MAX", 2)
    monkeypatch.setattr(cold_pulls, "COLD_PULLS_WAITING_MAX", 4)
    reader, peers = Reader(), [SlowPeer() for _ in range(3)]
    for number in range(2):
        for peer in peers:
            reader.run(Pull(peer, number * 10 + peers.index(peer)))
    assert reader.read == [0, 1]
    assert not reader.places.wait(Pull(peers[0], 99)), "beyond the bound nobody waits"
    reader.places.end(peers[0])
    assert reader.read == [0, 1, 2]
    reader.places.drop(peers[1])
    reader.places.end(peers[1])
    reader.places.end(peers[2])
    assert sorted(reader.read) == [0, 1, 2, 10, 12], "who has gone is forgotten"
    assert reader.places.waiting_count == 0


def test_a_connection_stands_in_the_turn_once_however_often_it_ends_a_read() -> None:
    reader, peers = Reader(), [SlowPeer() for _ in range(3)]
    for number in range(6):
        for peer in peers:
            reader.run(Pull(peer, number))
    for peer in peers:
        peer.writable = False
        reader.places.end(peer)
        reader.places.end(peer)
    for peer in peers:
        peer.takes_again()
        peer.takes_again()
        assert len(reader.places._turn) == len(reader.places._in_turn) == len(set(reader.places._turn))
    while any(reader.places._running.values()):
        reader.places.end(next(iter(reader.places._running)))
    assert sorted(reader.read) == sorted(list(range(6)) * 3)
    assert not reader.places._turn
    assert not reader.places._in_turn


def test_calls_on_one_connection_share_its_places_and_others_are_served_meanwhile() -> None:
    reader, connection, other = Reader(), SlowPeer(), SlowPeer()
    calls = [CallOf(connection) for _ in range(200)]
    for number, call in enumerate(calls):
        reader.run(Pull(call, number))
    reader.run(Pull(other, 999))
    assert (reader.read, reader.places.waiting_count) == ([0, 1, 999], 198)
    reader.places.drop(calls[2])
    reader.places.drop(calls[2])
    reader.places.end(calls[0])
    assert (reader.read, reader.places.waiting_count) == ([0, 1, 999, 3], 196)
    connection.writable = False
    reader.places.end(calls[1])
    reader.places.drop(calls[4])
    assert reader.read == [0, 1, 999, 3]
    connection.takes_again()
    assert reader.read == [0, 1, 999, 3, 5]
    for call in calls:
        reader.places.drop(call)
    reader.places.end(calls[3])
    reader.places.end(calls[5])
    reader.places.end(other)
    assert (reader.read, reader.places.waiting_count) == ([0, 1, 999, 3, 5], 0)
    assert (reader.places._running, reader.places._waiting) == ({}, {})
