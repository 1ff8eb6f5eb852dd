"""The audit log: a line for each request that administers a server, with its caller, what was asked, and what that changed.

Rules of this file
1. Which requests administer is read off the table of requests: those that need Create, Update or Delete and have no other choice. What
   servers ask one another all the time is not among them; what tools do to messages is, though a sender's permission is enough.
2. Nothing secret is written. Of the header only fields that the table names are, of the body nothing itself: whoever serves tells what a
   request is about as text, before and after it (`Subject`). A refusal is told by its code, for its remark may quote what was sent.
3. A request that is asked again because something was not in memory is a line when it is answered. One that is answered later is told
   when it was taken.
4. Lines are bounded. More of them within a window than `AUDIT_LINES_MAX` are counted, as other lines are; refusals are counted apart.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from orbitmq.access.gate import Denied, caller_name
from orbitmq.errors import OrbitError
from orbitmq.limits.access import AUDIT_LINE_CHARS_MAX, AUDIT_LINES_MAX, AUDIT_VALUE_CHARS_MAX
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode, response_name
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.requests import REQUESTS, Action

logger: Final = logging.getLogger("orbitmq.audit")

_CHANGING: Final = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})
_OF_SERVERS: Final = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.FOLLOW_LOG,
        RequestCode.READ_LOG,
    }
)
_OF_TOOLS: Final = frozenset(
    {
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.RECALL_TIMERS,
        RequestCode.RESCHEDULE_TIMERS,
        RequestCode.FAR_LOAD,
        RequestCode.PUT_RECURRING,
        RequestCode.SET_RECURRING_STATE,
        RequestCode.DELETE_RECURRING,
    }
)
AUDITED: Final[frozenset[int]] = (
    frozenset(int(row.code) for row in REQUESTS.values() if any(need.actions <= _CHANGING for need in row.needs))
    - _OF_SERVERS
    | _OF_TOOLS
)
"""Codes of requests that leave a line. Of `UPDATE_CONSUMER_OFFSET` only those that no consumer sends: see `Subject`."""

_TOLD_WHEN_DONE: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.FAR_LOAD,
    }
)
"""Whoever does it tells it, by `tell`: accounts when they are written, on another thread; a job's files once, however often it asks about
them."""

_SECRET_FIELDS: Final = frozenset({"secretKey"})

_Answer = TypeVar("_Answer", bound=Command | None)


class About(NamedTuple):
    """What a request is about. `state()`: what it may change, as it is now, text by name. `said`: what its body says and no state does."""

    state: Callable[[], Mapping[str, str]] = dict
    said: str = ""


Subject = Callable[[Command, Peer], About | None]
"""Tells it; None for a request that leaves no line. Raises what reading the request raises."""


def in_fields(command: Command, peer: Peer) -> About:
    """The subject of a request that says everything in its fields."""
    return About()


class Secret(str):
    """A text of which a line only tells that it has changed."""

    __slots__ = ()


class Members(str):
    """A JSON object, made here, of which a line tells the members that differ: a whole one would be cut before them."""

    __slots__ = ()


def caller_text(peer: Peer) -> str:
    """Who asks, and from where. Known while the request is being handled."""
    user, (host, port) = caller_name(peer), peer.address
    return f"user {user!r} at {host}:{port}" if user else f"somebody unknown at {host}:{port}"


def tell(caller: str, event: str, text: str, refused: int = ResponseCode.SUCCESS) -> None:
    """Write a line. `event` is its name in JSON lines; `refused` the code of an answer that says no. However many requests of strangers are
    refused, what was done is written."""
    if len(text) > AUDIT_LINE_CHARS_MAX:
        text = f"{text[:AUDIT_LINE_CHARS_MAX]} ... and {len(text) - AUDIT_LINE_CHARS_MAX} characters more"
    if refused == ResponseCode.SUCCESS:
        logger.info("%s: %s", caller, text, extra={"event": event, "repeats_max": AUDIT_LINES_MAX})
    else:
        logger.info("%s is refused, %s: %s", caller, response_name(refused), text, extra={"event": event})


def audited(
    code: int, handler: Callable[[Command, Peer], _Answer], subject: Subject
) -> Callable[[Command, Peer], _Answer]:
    """The handler of a code with the audit log behind it; the handler itself where the code leaves no line."""
    if code not in AUDITED or code in _TOLD_WHEN_DONE:
        return handler

    def handle(command: Command, peer: Peer) -> _Answer:
        about = _about(subject, command, peer)
        if about is None:
            return handler(command, peer)
        before = about.state()
        try:
            answer = handler(command, peer)
        except (OrbitError, OSError) as error:
            _tell_request(command, peer, about, before, getattr(error, "code", ResponseCode.SYSTEM_ERROR))
            if isinstance(error, Denied):
                error.is_told = True
            raise
        _tell_request(command, peer, about, before, ResponseCode.SUCCESS if answer is None else answer.code)
        return answer

    return handle


def tell_denied(command: Command, peer: Peer, denied: Denied) -> None:
    """A gate, or what asks one later, did not let a request through: a line where it would have left one and has not yet."""
    if not denied.is_told and command.code in AUDITED and command.code != RequestCode.UPDATE_CONSUMER_OFFSET:
        _tell_request(command, peer, About(), {}, denied.code)


def _about(subject: Subject, command: Command, peer: Peer) -> About | None:
    try:
        return subject(command, peer)
    except (OrbitError, ValueError):
        return About()  # a request that cannot be read: its handler says so


def _tell_request(command: Command, peer: Peer, about: About, before: Mapping[str, str], code: int) -> None:
    row = REQUESTS[RequestCode(command.code)]
    words = [row.code.name]
    words += [
        f"{field.name}={_short(command.fields[field.name])}"
        for field in row.header.request
        if field.name in command.fields and field.name not in _SECRET_FIELDS
    ]
    parts = [" ".join([*words, about.said] if about.said else words)]
    after = about.state()
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old != new:
            if isinstance(old, Members) and isinstance(new, Members):
                old, new = _that_differ(old, new)
            parts.append(f"{name}: {_shown(old)} -> {_shown(new)}")
    tell(caller_text(peer), row.code.name, "; ".join(parts), code)


def _shown(value: str | None) -> str:
    if value is None:
        return "none"
    return "******" if isinstance(value, Secret) else _short(value)


def _that_differ(old: Members, new: Members) -> tuple[str, str]:
    """Both without the members that are the same in them."""
    objects = json.loads(old), json.loads(new)
    same = {name for name, value in objects[0].items() if name in objects[1] and objects[1][name] == value}
    first, second = ({name: value for name, value in one.items() if name not in same} for one in objects)
    return json.dumps(first), json.dumps(second)


def _short(text: str) -> str:
    return text if len(text) <= AUDIT_VALUE_CHARS_MAX else f"{text[:AUDIT_VALUE_CHARS_MAX]}..."
