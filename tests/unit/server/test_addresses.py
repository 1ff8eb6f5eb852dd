"""The address a broker announces."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.server.connections.addresses import ANY_ADDRESSES, advertised_address


def test_the_configured_address_wins() -> None:
    assert advertised_address("192.0.2.7", "127.0.0.1") == "192.0.2.7"
    assert advertised_address("192.0.2.7", "0.0.0.0") == "192.0.2.7"


def test_else_the_bound_one() -> None:
    assert advertised_address("", "127.0.0.1") == "127.0.0.1"
    assert advertised_address("", "::1") == "::1"


@pytest.mark.parametrize("bound", sorted(ANY_ADDRESSES))
def test_a_broker_that_listens_everywhere_announces_one_address(bound: str) -> None:
    address = ipaddress.ip_address(advertised_address("", bound))
    assert not address.is_unspecified


def test_a_host_name_becomes_an_address() -> None:
    assert ipaddress.ip_address(advertised_address("localhost", "0.0.0.0")).is_loopback


def test_a_name_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ConfigurationError, match="nowhere") as caught:
        advertised_address("nowhere.invalid", "127.0.0.1")
    assert "brokerIP1" in str(caught.value)


def test_without_any_network_it_is_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(self: socket.socket, address: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", unreachable, raising=False)
    monkeypatch.setattr("orbitmq.server.connections.addresses.socket.socket.connect", unreachable, raising=False)
    assert advertised_address("", "0.0.0.0") == "127.0.0.1"
