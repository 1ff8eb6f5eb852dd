"""The gate of RocketMQ 5: a request is signed by a user, and the user's policies allow what its row says, or what a gRPC call names.

Rules of this file
1. A code without a row, or whose row says nothing about callers, is not let through.
2. Both questions are asked of each request, and of each message of a gRPC stream; what was found out about an earlier one on the same
   connection counts for nothing.
3. A permission is somebody's: a request that is judged is signed, even where its code needs no signature.
4. After too many failures of an address the answer to each further one waits. What is right is never slowed.

(RocketMQ broker, auth in 5.x: authentication, authorization; RocketMQ gRPC, signature scheme.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, NoReturn, Protocol

from orbitmq.access.authentication import Authentication, Unproven
from orbitmq.access.evaluation import Permissions
from orbitmq.access.failures import FailedAttempts
from orbitmq.access.gate import CALLER, CallNeeds, Denied, LedTo
from orbitmq.access.needed import Needed, judged_as
from orbitmq.access.request_needs import needs_of, needs_of_call
from orbitmq.access.users import User, UserStatus, UserType
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.grpc.rpcs import RPCS, Rpc
from orbitmq.protocol.grpc.signature import read_authorization
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
    """`cluster` is the server's own. `unsigned`: codes and RPCs that need no signature; `unjudged`: those that need no permission."""

    cluster: str
    authorizes: bool = True
    unsigned: frozenset[int | Rpc] = frozenset()
    unjudged: frozenset[int | Rpc] = frozenset()


class _CodeRule(NamedTuple):
    """What is asked about a code. `row` None: whether the caller may is not."""

    is_signed: bool
    row: RequestRow | None


class _CallRule(NamedTuple):
    """What is asked about an RPC: who calls, and whether they may."""

    is_signed: bool
    is_judged: bool


class UsersGate:
    def __init__(self, users: UserSource, rules: GateRules, attempts: FailedAttempts) -> None:
        self._users = users
        self._cluster = rules.cluster
        self._authorizes = rules.authorizes
        self._rules = {int(row.code): _code_rule(row, rules) for row in REQUESTS.values() if row.signed}
        self._call_rules = {rpc: _call_rule(rpc, rules) for rpc in RPCS}
        self._authentication = Authentication(users.user)
        self._attempts = attempts
        self.denials: Counter[str] = Counter()
        """Requests and calls that were not let through, by the reason: values of `Unproven` and `NOT_ALLOWED`."""

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
            self._refuse(user, _REMARKS, command.text(ACCESS_KEY_FIELD), command.code, peer.address[0])
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

    def admit_call(self, call: OpenCall, needs: CallNeeds) -> str:
        """See `Gate.admit_call`. Costs 6 us for a send that is judged.

        Who has signed what needs no signature is known nevertheless: a client's calls have to lead to one session.
        """
        rpc, address = call.call.row.rpc, call.address[0]
        is_signed, is_judged = self._call_rules[rpc]
        signature = read_authorization(call.call.authorization)
        user: User | Unproven = Unproven.NO_NAME
        if signature is not None:
            user = self._authentication.caller_of_call(signature, call.call.signed_text)
        if isinstance(user, Unproven):
            if not is_signed:
                return ""
            self._refuse(user, _CALL_REMARKS, "" if signature is None else signature.access_key, rpc, address)
        if is_judged and user.type is not UserType.SUPER:
            try:
                needed = needs_of_call(rpc, needs())
            except Denied:
                self.denials[NOT_ALLOWED] += 1
                raise
            self._judge(user, needed, address, None)
        return user.name

    def may_publish(self, user: str, ip: str, topic: str) -> bool:
        return self._may(user, ip, Needed(ResourceType.TOPIC, topic, _PUB))

    def may_consume(self, user: str, ip: str, group: str, topic: str | None) -> bool:
        return self._may(
            user, ip, Needed(ResourceType.GROUP, group, _SUB), judged_as(Needed(ResourceType.TOPIC, topic, _SUB))
        )

    def _may(self, user: str, ip: str, *needs: Needed) -> bool:
        if not self._authorizes:
            return True
        known = self._users.user(user)
        if known is None or known.status is UserStatus.DISABLED:
            return False
        if known.type is UserType.SUPER:
            return True
        permissions = self._users.permissions(user)
        return permissions is not None and all(permissions.judge(needed, ip).is_allowed for needed in needs)

    def _judge(self, user: User, needs: Iterable[Needed], address: str, command: Command | None) -> None:
        """`command`: the request; None for a call, which names everything that it needs."""
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

    def _refuse(
        self, why: Unproven, remarks: Mapping[Unproven, str], name: str, request: int | str, address: str
    ) -> NoReturn:
        """Count a request whose caller is not known; the more there were, the later its answer. `name`: whose it says to be."""
        self.denials[why.value] += 1
        known_name = "" if self._users.user(name) is None else name
        wait_ms = self._attempts.refused(request, address, why.value, known_name)
        raise Denied(ResponseCode.NO_PERMISSION, remarks[why].format(name=name), wait_ms=wait_ms)


def _told(needed: Needed, command: Command | None) -> str:
    """What is said of a resource: its name only to who named it, or the names behind all places in the log could be asked for."""
    name = needed.name
    if command is None:
        return needed.text
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

_CALL_REMARKS: Final = _REMARKS | {
    Unproven.NO_NAME: "username cannot be null. The call is not signed: its header field authorization is missing, or names no access key",
    Unproven.WRONG_SIGNATURE: "check signature failed. User:{name} has another secret, or the call has no x-mq-date-time",
}

_PUB: Final = frozenset({Action.PUB})
_SUB: Final = frozenset({Action.SUB})


def _code_rule(row: RequestRow, rules: GateRules) -> _CodeRule:
    is_judged = rules.authorizes and row.code not in rules.unjudged
    return _CodeRule(is_judged or row.code not in rules.unsigned, row if is_judged else None)


def _call_rule(rpc: Rpc, rules: GateRules) -> _CallRule:
    is_judged = rules.authorizes and rpc not in rules.unjudged
    return _CallRule(is_judged or rpc not in rules.unsigned, is_judged)
