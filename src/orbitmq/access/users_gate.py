"""The gate of RocketMQ 5: a request is signed by a user, and the user's policies allow what its row says.

Rules of this file
1. A code without a row, or whose row says nothing about callers, is not let through.
2. Both questions are asked of each request; what was found out about an earlier one on the same connection counts for nothing.
3. A permission is somebody's: a request that is judged is signed, even where its code needs no signature.
4. After too many failures of an address the answer to each further one waits. What is right is never slowed.

(RocketMQ broker, auth in 5.x: authentication, authorization.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple, NoReturn, Protocol

from orbitmq.access.authentication import Authentication, Unproven
from orbitmq.access.evaluation import Permissions
from orbitmq.access.failures import FailedAttempts
from orbitmq.access.gate import CALLER, Denied, LedTo
from orbitmq.access.needed import Needed, needs_of
from orbitmq.access.users import User, UserStatus, UserType
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.requests import REQUESTS, Action, RequestRow, ResourceType
from orbitmq.protocol.signing import ACCESS_KEY_FIELD

NOT_ALLOWED: Final = "not_allowed"
"""Label of a metric: the caller is known and may not do it."""


class UserSource(Protocol):
    """Who exists and what they may do, as it is now."""

    def user(self, name: str) -> User | None: ...

    def permissions(self, name: str) -> Permissions | None: ...


class GateRules(NamedTuple):
    """`cluster` is the server's own. `unsigned`: codes that need no signature; `unjudged`: codes that need no permission."""

    cluster: str
    authorizes: bool = True
    unsigned: frozenset[int] = frozenset()
    unjudged: frozenset[int] = frozenset()


class _CodeRule(NamedTuple):
    """What is asked about a code. `row` None: whether the caller may is not."""

    is_signed: bool
    row: RequestRow | None


class UsersGate:
    def __init__(self, users: UserSource, rules: GateRules, attempts: FailedAttempts) -> None:
        self._users = users
        self._cluster = rules.cluster
        self._authorizes = rules.authorizes
        self._rules = {int(row.code): _code_rule(row, rules) for row in REQUESTS.values() if row.signed}
        self._authentication = Authentication(users.user)
        self._attempts = attempts
        self.denials: Counter[str] = Counter()
        """Requests that were not let through, by the reason: values of `Unproven` and `NOT_ALLOWED`."""

    def admit(self, command: Command, peer: Peer, led_to: LedTo | None) -> None:
        """Raises `Denied`, and what `led_to` raises."""
        attachments = peer.attachments
        attachments.pop(CALLER, None)
        rule = self._rules.get(command.code)
        if rule is None:
            self._deny(f"request code {command.code} has no row that says who may send it")
        if not rule.is_signed:
            return
        user = self._authentication.caller(command)
        if isinstance(user, Unproven):
            self._refuse(user, command, peer)
        attachments[CALLER] = user
        if rule.row is None or user.type is UserType.SUPER:
            return
        try:
            needs = needs_of(command, rule.row, self._cluster, led_to)
        except Denied:
            self.denials[NOT_ALLOWED] += 1
            raise
        if needs:
            self._judge(user, needs, peer.address[0], command)

    def may_publish(self, user: str, ip: str, topic: str) -> bool:
        if not self._authorizes:
            return True
        known = self._users.user(user)
        if known is None or known.status is UserStatus.DISABLED:
            return False
        if known.type is UserType.SUPER:
            return True
        permissions = self._users.permissions(user)
        needed = Needed(ResourceType.TOPIC, topic, frozenset({Action.PUB}))
        return permissions is not None and permissions.judge(needed, ip).is_allowed

    def _judge(self, user: User, needs: Iterable[Needed], address: str, command: Command) -> None:
        permissions = self._users.permissions(user.name)
        for needed in needs:
            judgement = None if permissions is None else permissions.judge(needed, address)
            if judgement is None or not judgement.is_allowed:
                why = (
                    "no matched policies." if judgement is None or judgement.entry is None else "the decision is deny."
                )
                actions = "|".join(sorted(action.value for action in needed.actions))
                self._deny(
                    f"User:{user.name} has no permission to access {_told(needed, command)} from {address}, {why} It needs {actions}"
                )

    def _deny(self, remark: str) -> NoReturn:
        self.denials[NOT_ALLOWED] += 1
        raise Denied(ResponseCode.NO_PERMISSION, remark)

    # --- failures -----------------------------------------------------------------------------------------------------

    def _refuse(self, why: Unproven, command: Command, peer: Peer) -> NoReturn:
        """Count a request whose caller is not known; the more there were, the later its answer."""
        self.denials[why.value] += 1
        name = command.text(ACCESS_KEY_FIELD)
        known_name = "" if self._users.user(name) is None else name
        wait_ms = self._attempts.refused(command.code, peer.address[0], why.value, known_name)
        raise Denied(ResponseCode.NO_PERMISSION, _REMARKS[why].format(name=name), wait_ms=wait_ms)


def _told(needed: Needed, command: Command) -> str:
    """What is said of a resource: its name only to who named it, or the names behind all places in the log could be asked for."""
    name = needed.name
    is_named = (
        name is None or any(name in text for text in command.fields.values()) or name.encode() in bytes(command.body)
    )
    if is_named or needed.resource is ResourceType.CLUSTER:
        return needed.text
    return f"the {needed.resource.value.lower()} that the request leads to"


_REMARKS: Final = {
    Unproven.NO_NAME: "username cannot be null. The request is not signed: it has no field AccessKey",
    Unproven.UNKNOWN_USER: "User:{name} is not found.",
    Unproven.DISABLED: "User:{name} is disabled.",
    Unproven.WRONG_SIGNATURE: "check signature failed. User:{name} has another secret, or the request was changed on its way",
}
"""RocketMQ's texts, and what they mean."""


def _code_rule(row: RequestRow, rules: GateRules) -> _CodeRule:
    is_judged = rules.authorizes and row.code not in rules.unjudged
    return _CodeRule(is_judged or row.code not in rules.unsigned, row if is_judged else None)
