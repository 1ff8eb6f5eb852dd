"""The rooms of a broker, made in the order in which they need one another.

Adding a room is writing it (`room.Room`) and naming it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.broker.administration.processors import Administration
from orbitmq.broker.administration.queries import QueryProcessor
from orbitmq.broker.admission import Admission
from orbitmq.broker.assignment.requests import AssignmentRequests
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.idempotence.repeats import Repeats
from orbitmq.broker.idempotence.requests import IdempotenceRequests
from orbitmq.broker.membership import MembershipProcessor
from orbitmq.broker.offset_requests import OffsetProcessor
from orbitmq.broker.pop.pops import Pops
from orbitmq.broker.pop.requests import PopRequests
from orbitmq.broker.pull import PullProcessor
from orbitmq.broker.recurring.requests import RecurringProcessor
from orbitmq.broker.recurring.run_sending import BrokerRuns
from orbitmq.broker.reply import ReplyProcessor
from orbitmq.broker.room import Room
from orbitmq.broker.send_back import SendBackRequests, SendBacks
from orbitmq.broker.send_requests import SendRequests
from orbitmq.broker.sends import Sends
from orbitmq.broker.table_records.finished_epochs import RecordedFinishedEpochs
from orbitmq.broker.table_records.sent_keys import RecordedSentKeys, RecordedTopicEnds
from orbitmq.broker.timers.finding import TimerFinder
from orbitmq.broker.timers.intake import TimerIntake
from orbitmq.broker.timers.service import TimerService
from orbitmq.broker.transactions.requests import TransactionProcessor
from orbitmq.broker.unknown_callers import NoAccounts, NoUsers
from orbitmq.timing.appending import Appender


class BrokerRooms:
    """`all` are the rooms of a broker; those that others look at have names."""

    def __init__(self, core: BrokerCore, derived: DerivedState) -> None:
        intake = TimerIntake(core.settings, derived.timers, derived.far, clock_rounding_ms=core.clock.rounding_ms)
        self.admission: Final = Admission(core, intake, derived.idempotence, derived.transactions)
        self.timers: Final = None if derived.timers is None else TimerService(core, self.admission, derived)
        finder = None if self.timers is None else self.timers.finder
        self.sends: Final = Sends(core, self.admission, _repeats(core, self.admission, finder))
        self.send_backs: Final = SendBacks(core, self.admission)
        self.pulls: Final = PullProcessor(core)
        self.pops: Final = Pops(core, self.admission, derived.timers)
        self.assignment: Final = AssignmentRequests(core)
        self.administration: Final = Administration(core, self.sends, self.pulls, offsets_gone=self.pops.forget_gone)
        self.all: Final[list[Room]] = [
            SendRequests(core, self.admission, self.sends),
            SendBackRequests(core, self.send_backs),
            ReplyProcessor(core, self.admission),
            self.pulls,
            self.pops,
            PopRequests(self.pops, core.clock),
            self.assignment,
            OffsetProcessor(core, wake_reset=[self.pulls.wake_reset, self.pops.wake_reset], beside=[self.pops.orders]),
            MembershipProcessor(core),
            QueryProcessor(core),
            _accounts(core),
            self.administration,
            _users(core),
        ]
        if derived.idempotence is not None:
            core.bind(RecordedFinishedEpochs(derived.idempotence, core.clock))
            if core.records is not None:
                core.bind(RecordedSentKeys(derived.idempotence, core.store, core.records.reading, core.clock))
                core.bind(RecordedTopicEnds(derived.idempotence, core.records.reading))
            self.all.append(IdempotenceRequests(derived.idempotence, core.clock))
        if self.timers is not None:
            self.all.append(self.timers)
        if derived.recurrences is not None:
            runs = BrokerRuns(self.admission, core.topics, core.offsets, core.clock)
            self.all.append(RecurringProcessor(core, derived.recurrences, runs))
        self.transactions: Final = (
            None if derived.transactions is None else TransactionProcessor(core, self.admission, derived.transactions)
        )
        checking: list[Appender] = []
        if self.transactions is not None:
            self.all.append(self.transactions)
            checking = [self.transactions.checks, self.transactions.op_records]
        self.appenders: Final[list[Appender]] = [*derived.appenders(), self.pops, *checking]
        """All that append by themselves, in the order in which they begin."""

        def facts() -> Mapping[str, str]:
            told = [core.facts(), *(room.facts() for room in self.all)]
            return {name: str(value) for part in told for name, value in part.items()}

        self.administration.broker.more_facts.append(facts)


def _accounts(core: BrokerCore) -> Room:
    files = core.facilities.accounts
    if files is None:
        return NoAccounts()
    from orbitmq.broker.plain_accounts import PlainAccounts  # 0.2 MB that a broker without accounts does without

    return PlainAccounts(core, files)


def _users(core: BrokerCore) -> Room:
    access = core.facilities.access
    if access is None:
        return NoUsers()
    from orbitmq.broker.access_requests import USERS, AccessRequests  # likewise

    return AccessRequests(access, core.make_saving((access,), USERS))


def _repeats(core: BrokerCore, admission: Admission, finder: TimerFinder | None) -> Repeats | None:
    """What repeats of idempotent sends are told, where the broker knows them."""
    if admission.idempotence is None:
        return None
    intake = admission.timers
    return Repeats(
        admission.idempotence,
        core.store,
        precision_ms=intake.rules.precision_ms,
        handle_of=intake.handle_of,
        is_recalled=(lambda topic, message_id, due_ms, far_source: False) if finder is None else finder.is_recalled,
    )
