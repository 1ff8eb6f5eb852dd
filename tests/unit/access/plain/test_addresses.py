"""Patterns of client addresses: which address each form lets in, and what is refused as malformed."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.access.plain.addresses import address_fields, read_address_pattern


def lets_in(pattern: str, address: str) -> bool:
    return read_address_pattern(pattern).matches(address_fields(address))


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("192.168.0.7", "192.168.0.7", "192.168.0.8"),
        ("10.0.0.1,10.0.0.2", "10.0.0.2", "10.0.0.3"),
        ("192.168.0.{7,8}", "192.168.0.8", "192.168.0.9"),
        ("192.168.0.*", "192.168.0.255", "192.168.1.0"),
        ("192.168.*.*", "192.168.9.9", "192.169.0.1"),
        ("192.*.*.*", "192.0.0.0", "193.0.0.0"),
        ("192.168.0.1-20", "192.168.0.20", "192.168.0.21"),
        ("192.168.1-20.*", "192.168.1.255", "192.168.21.1"),
        ("192.100-150.*.*", "192.150.3.4", "192.151.3.4"),
        ("192.168.1-20.5", "192.168.3.5", "192.168.3.6"),
        ("2001:db8::1", "2001:0DB8:0:0:0:0:0:1", "2001:db8::2"),
        ("2::ac5:78:1", "2:0:0:0:0:ac5:78:1", "2::ac5:78:2"),
        ("1050::5:600:300c:{1,ff}", "1050::5:600:300c:ff", "1050::5:600:300c:fe"),
        ("::1,127.0.0.1", "127.0.0.1", "127.0.0.2"),
        ("2001:db8:*", "2001:db8:ffff::1", "2001:db9::1"),
        ("2::ac5:78:*", "2::ac5:78:ffff", "2::ac5:79:1"),
        ("2::ac5:78:1-200", "2::ac5:78:200", "2::ac5:78:201"),
        ("2::ac5:1-200:*", "2::ac5:200:9", "2::ac5:201:9"),
        ("10.0.0.1", "::ffff:10.0.0.1", "::10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.2"),
    ],
)
def test_each_form_lets_in_what_it_names_and_nothing_else(pattern: str, inside: str, outside: str) -> None:
    assert lets_in(pattern, inside)
    assert not lets_in(pattern, outside)


@pytest.mark.parametrize("pattern", ["*", "*.*.*.*", "*:*:*:*:*:*:*:*"])
def test_everywhere_lets_in_both_families_and_what_is_no_address(pattern: str) -> None:
    assert all(lets_in(pattern, address) for address in ("10.0.0.1", "::1", "a socket"))


@pytest.mark.parametrize("pattern", ["", "  "])
def test_an_empty_pattern_lets_in_nobody(pattern: str) -> None:
    assert not any(lets_in(pattern, address) for address in ("10.0.0.1", "::1", "a socket"))


@pytest.mark.parametrize(
    ("pattern", "place"),
    [
        ("256.0.0.1", "'256.0.0.1' is no address"),
        ("10.0.0", "'10.0.0' is no address"),
        ("10.0.0.01", "'10.0.0.01' is no address"),
        ("10.0.0.1/24", "is no address"),
        ("fe80::1%eth0", "is no address"),
        ("localhost", "'localhost' is no address"),
        ("10.0.0.1,10.0.0.*", "'10.0.0.*' is no address"),
        ("10.0.{1,2}.3}", "'10.0.1' is no address"),
        ("10.0.0.1{2,3}", "last field only"),
        ("{10.0.0.1,10.0.0.2}", "last field only"),
        ("10.0.0.{1-3}", "'10.0.0.1-3' is no address"),
        ("10.*", "has 2 fields"),
        ("*.0.0.1", "field 1"),
        ("1-5.0.0.*", "field 1"),
        ("10.0.0.20-1", "field 4 must go up"),
        ("10.0.0.1-256", "field 4"),
        ("10.0.0.-5", "field 4"),
        ("10.0.0.5-", "field 4"),
        ("10.0.0.1-2-3", "field 4"),
        ("10.0.x.*", "field 3"),
        ("*:1:2:3:4:5:6:7", "behind the first group"),
        ("2001:*:1:2:3:4:5:6", "behind the first group"),
        ("2001::1-5:2:3", "behind the first group"),
        ("2001:1-5", "2 groups"),
        ("1:2:3:4:5:6:7:8:*", "too many groups"),
        ("1::2::*", "too many groups"),
        ("2001:db8:0:0:0:0:0:g-h", "field 8"),
    ],
)
def test_a_malformed_pattern_is_refused_with_its_place(pattern: str, place: str) -> None:
    with pytest.raises(ValueError, match="address pattern") as refused:
        read_address_pattern(pattern)
    assert place in str(refused.value)


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6), st.ip_addresses(v=4) | st.ip_addresses(v=6))
def test_one_address_is_that_address(one: IPv4Address | IPv6Address, other: IPv4Address | IPv6Address) -> None:
    assert lets_in(str(one), str(one))
    assert lets_in(str(one), str(other)) == (address_fields(str(one)) == address_fields(str(other)))


@given(st.text("0123456789abcdef.:*-{}, ", max_size=40), st.ip_addresses())
def test_any_text_is_read_or_refused(text: str, address: IPv4Address | IPv6Address) -> None:
    try:
        pattern = read_address_pattern(text)
    except ValueError:
        return
    assert pattern.matches(address_fields(str(address))) in (True, False)
