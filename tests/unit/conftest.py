"""What the unit tests of several servers share: the account of replayed exchanges."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

import orbitmq.cli
from orbitmq.protocol.remoting.codes import RequestCode

COVERAGE = Path(orbitmq.cli.__file__).parent / "coverage.json"

_Code = RequestCode
_TIMERS = "unit/broker/timers"
_TRANSACTIONS = "unit/broker/transactions"

JUDGED_BY = {
    _Code.END_TRANSACTION: f"{_TRANSACTIONS}/test_decisions.py",
    _Code.CHECK_TRANSACTION_STATE: f"{_TRANSACTIONS}/test_checks.py",
    _Code.RESUME_CHECK_HALF_MESSAGE: f"{_TRANSACTIONS}/test_checks.py",
    _Code.LIST_TRANSACTIONS: f"{_TRANSACTIONS}/test_showing.py",
    _Code.GET_TRANSACTION: f"{_TRANSACTIONS}/test_showing.py",
    _Code.NOTIFY_CONSUMER_IDS_CHANGED: "unit/broker/test_membership.py",
    _Code.RESET_CONSUMER_CLIENT_OFFSET: "unit/client/test_consumer.py",
    _Code.GET_CONSUMER_STATUS_FROM_CLIENT: "unit/client/test_consumer.py",
    _Code.PUSH_REPLY_MESSAGE_TO_CLIENT: "unit/broker/test_reply.py",
    _Code.BROKER_HEARTBEAT: "unit/nameserver/test_nameserver.py",
    _Code.GET_TIMER_CHECK_POINT: "unit/broker/timers/test_figures.py",
    _Code.GET_TIMER_METRICS: f"{_TIMERS}/test_figures.py",
    _Code.RECALL_MESSAGE: f"{_TIMERS}/test_recalls.py",
    _Code.RECALL_TIMERS: f"{_TIMERS}/test_requests.py",
    _Code.RESCHEDULE_TIMERS: f"{_TIMERS}/test_requests.py",
    _Code.TIMER_STATUS: f"{_TIMERS}/test_requests.py",
    _Code.LIST_TIMERS: f"{_TIMERS}/test_requests.py",
    _Code.COUNT_TIMERS: f"{_TIMERS}/test_requests.py",
    _Code.GET_TIMER: f"{_TIMERS}/test_requests.py",
    _Code.PUT_RECURRING: "unit/broker/test_recurring.py",
    _Code.GET_RECURRING: "unit/broker/test_recurring.py",
    _Code.SET_RECURRING_STATE: "unit/broker/test_recurring.py",
    _Code.DELETE_RECURRING: "unit/broker/test_recurring.py",
    _Code.FAR_LOAD: f"{_TIMERS}/test_far_loads.py",
    _Code.FAR_TIER: "unit/cli/test_far_tier_commands.py",
    _Code.FIND_SCOPES: "unit/broker/test_idempotence_requests.py",
    _Code.FINISH_EPOCH: "unit/broker/test_idempotence_requests.py",
    _Code.FOLLOW_LOG: "system/test_pair.py",
    _Code.PROMOTE_SLAVE: "system/test_pair.py",
    _Code.DEMOTE_MASTER: "system/test_pair_switch.py",
    _Code.RESEED_SLAVE: "system/test_pair_reseeding.py",
    _Code.FORGET_SLAVE: "system/test_pair.py",
    _Code.READ_LOG: "system/test_pair_damage.py",
    _Code.UPDATE_AND_CREATE_ACL_CONFIG: "unit/broker/test_plain_accounts.py",
    _Code.DELETE_ACL_CONFIG: "unit/broker/test_plain_accounts.py",
    _Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: "unit/broker/test_plain_accounts.py",
    _Code.GET_BROKER_CLUSTER_ACL_INFO: "unit/broker/test_plain_accounts.py",
    _Code.GET_BROKER_CLUSTER_ACL_CONFIG: "unit/broker/test_plain_accounts.py",
}
"""Of what no exchange was recorded: the test that judges it, by its path in tests/."""


@pytest.fixture
def check_coverage() -> Callable[[Collection[int], Counter[int]], None]:
    """Compare what one server's replay test counted with `orbitmq/cli/coverage.json`.

    Takes the request codes that the server serves and how many recorded exchanges of each agreed. Entries of other
    servers' codes are left alone. With ORBITMQ_WRITE_COVERAGE=1 the file is renewed.
    """

    def check(served: Collection[int], agreed: Counter[int]) -> None:
        kept = json.loads(COVERAGE.read_bytes()) if COVERAGE.exists() else {}
        current = {int(code): entry for code, entry in kept.items() if int(code) not in served}
        current |= {int(code): {"replayed": count} for code, count in agreed.items()}
        current |= {int(code): {"judged_by": path} for code, path in JUDGED_BY.items() if int(code) not in agreed}
        document = {str(code): current[code] for code in sorted(current)}
        if os.environ.get("ORBITMQ_WRITE_COVERAGE") == "1":
            COVERAGE.write_text(json.dumps(document, indent=2) + "\n")
        assert json.loads(COVERAGE.read_bytes()) == document, "renew it with ORBITMQ_WRITE_COVERAGE=1"

    return check
