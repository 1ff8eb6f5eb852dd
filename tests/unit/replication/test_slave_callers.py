"""Who may follow without a ticket."""

from __future__ import annotations

import pytest

from orbitmq.access.policies import read_source
from orbitmq.replication.slave_callers import may_follow_unnamed

PEERS = [read_source("10.1.0.0/16"), read_source("fe80::1")]


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fe80::1%eth0", True),
        ("10.2.0.1", False),
        ("fe80::2", False),
        ("", False),
        ("no address", False),
    ],
)
def test_named_addresses(address: str, allowed: bool) -> None:
    for authenticates in (True, False):
        assert may_follow_unnamed(address, PEERS, authenticates=authenticates) is allowed


def test_without_named_addresses_authentication_decides() -> None:
    assert may_follow_unnamed("10.2.0.1", (), authenticates=False)
    assert not may_follow_unnamed("10.2.0.1", (), authenticates=True)
