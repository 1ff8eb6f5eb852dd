"""What a name server shows."""

from __future__ import annotations

from collections import Counter

from orbitmq.access.failures import FailedAttempts
from orbitmq.access.users_gate import GateRules, UsersGate
from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.nameserver_metrics import NameServerMetrics


class NoUsers:
    def user(self, name: str) -> None:
        return None

    def permissions(self, name: str) -> None:
        return None


def test_denials_are_shown_by_reason_where_a_gate_is() -> None:
    clock = ManualClock()
    open_one = NameServer(NameServerConfig(), clock, Deadlines())
    assert catalogue.NS_ACCESS_DENIED not in [family.metric for family in NameServerMetrics(open_one)()]
    gate = UsersGate(NoUsers(), GateRules("C"), FailedAttempts(clock))
    gate.denials = Counter({"no_name": 3, "not_allowed": 1})
    guarded = NameServer(NameServerConfig(), clock, Deadlines(), gate=gate)
    (shown,) = [family for family in NameServerMetrics(guarded)() if family.metric is catalogue.NS_ACCESS_DENIED]
    assert sorted((sample.labels, sample.value) for sample in shown.samples) == [
        (("no_name",), 3),
        (("not_allowed",), 1),
    ]
