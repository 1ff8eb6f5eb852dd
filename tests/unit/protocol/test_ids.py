"""Offset ids and unique keys."""

from __future__ import annotations

import os
import threading

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import ProtocolError
from orbitmq.protocol.ids import UniqueIds, decode_offset_id, encode_offset_id, host_text, pack_host, unpack_host

V4_ID = "0A00000100002A9F0000000000001000"
V6_ID = "20010DB800000000000000000000000100002A9F0000000000001000"


@pytest.mark.parametrize(("ip", "text"), [("10.0.0.1", V4_ID), ("2001:db8::1", V6_ID)])
def test_offset_ids_of_the_protocol_examples(ip: str, text: str) -> None:
    host = pack_host(ip, 10911)
    assert encode_offset_id(host, 4096) == text
    assert decode_offset_id(text) == (host, 4096)
    assert decode_offset_id(text.lower()) == (host, 4096)
    assert unpack_host(host) == (ip, 10911)


def test_host_text_puts_ipv6_in_brackets() -> None:
    assert host_text(pack_host("127.0.0.1", 1)) == "127.0.0.1:1"
    assert host_text(pack_host("::1", 10911)) == "[::1]:10911"


def test_a_zone_is_dropped() -> None:
    assert pack_host("fe80::1%eth0", 9) == pack_host("fe80::1", 9)


@pytest.mark.parametrize(
    ("ip", "port"),
    [("localhost", 1), ("", 1), ("1.2.3", 1), ("1.2.3.4", -1), ("1.2.3.4", 2**32), ("::g", 1), ("1.2.3.4\0", 1)],
)
def test_what_is_no_address_is_refused(ip: str, port: int) -> None:
    with pytest.raises(ProtocolError, match="is not an IP address"):
        pack_host(ip, port)


@pytest.mark.parametrize("length", [0, 4, 7, 9, 16, 19, 21])
def test_hosts_have_two_lengths(length: int) -> None:
    with pytest.raises(ProtocolError, match="8 or 20 bytes"):
        unpack_host(bytes(length))
    with pytest.raises(ProtocolError, match="8 or 20 bytes"):
        encode_offset_id(bytes(length), 0)


def test_an_offset_has_64_bits() -> None:
    with pytest.raises(ProtocolError, match="64 bits"):
        encode_offset_id(bytes(8), 2**63)


@pytest.mark.parametrize("text", ["", "0A", V4_ID + "0", "G" * 32, " " * 32, ("0A " * 11)[:32], "０" * 32])
def test_what_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_offset_id(text)


def test_unique_keys_have_the_layout_of_the_java_client() -> None:
    clock = ManualClock(1_700_000_000_000)
    key = UniqueIds(clock, "10.0.0.1").next()
    assert len(key) == 32
    assert key == key.upper()
    data = bytes.fromhex(key)
    assert data[:4] == bytes([10, 0, 0, 1])
    assert int.from_bytes(data[4:6], "big") == os.getpid() & 0xFFFF
    assert int.from_bytes(data[10:14], "big") < 32 * 86_400_000
    assert len(UniqueIds(clock, "2001:db8::1").next()) == 56


def test_keys_stay_unique_while_the_clock_stands_still_or_steps_back() -> None:
    clock = ManualClock()
    ids = UniqueIds(clock, "127.0.0.1")
    keys = [ids.next() for _ in range(70_000)]
    clock.set_wall(clock.now_ms() - 3_600_000)
    keys += [ids.next() for _ in range(1_000)]
    clock.advance(10_000_000)
    keys += [ids.next() for _ in range(1_000)]
    assert len(set(keys)) == len(keys)
    assert keys == sorted(keys)


def test_several_keys_at_once_belong_to_their_maker() -> None:
    ids = UniqueIds(ManualClock(), "127.0.0.1")
    prefix, first = ids.several(100_000)
    made = {f"{prefix}{number:012X}" for number in range(first, first + 100_000)}
    assert len(made) == 100_000
    following = ids.next()
    assert following not in made
    assert following > max(made)


def test_a_new_month_brings_a_new_salt() -> None:
    clock = ManualClock(1_700_000_000_000)
    ids = UniqueIds(clock, "127.0.0.1")
    first = ids.next()
    clock.advance(31 * 86_400_000)
    second = ids.next()
    assert first[:12] == second[:12]
    assert first[12:20] != second[12:20]
    assert int(second[20:28], 16) < 31 * 86_400_000


def test_keys_of_threads_and_makers_differ() -> None:
    clock = ManualClock()
    shared = UniqueIds(clock, "127.0.0.1")
    keys: list[str] = []

    def make() -> None:
        own = [shared.next() for _ in range(2_000)]
        keys.extend(own)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other = UniqueIds(clock, "127.0.0.1")
    keys += [other.next() for _ in range(100)]
    assert len(set(keys)) == 8_100


def test_a_forked_child_makes_other_keys() -> None:
    ids = UniqueIds(ManualClock(), "127.0.0.1")
    ids.next()
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writable, ids.next().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writable)
    theirs = os.read(readable, 100).decode()
    os.close(readable)
    assert len(theirs) == 32
    assert theirs[12:20] != ids.next()[12:20]
