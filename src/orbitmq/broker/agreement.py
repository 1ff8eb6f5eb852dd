"""Whether the members of a consumer group want the same, and are who they say.

The protocol keeps one subscription table per group, which every heartbeat overwrites: members that subscribe
differently take each other's messages away, and nobody is told. Two programs with one client id are taken for one client
by whoever allocates queues.

Rules of this file
1. Nothing is refused: RocketMQ does not either, and a group that is being redeployed disagrees for a while. It is said.
2. Pure: members in, sentences out. Who asks decides when, and whether to say it again.
3. Retry topics do not count: clients of different kinds subscribe to them in their own ways.
4. What is remembered of a member is bounded, however long its subscriptions are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from orbitmq.limits.broker import GROUP_WARNINGS_MAX, WISHES_COMPARED_MAX
from orbitmq.protocol.filtering.tags import EVERYTHING
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.remoting.bodies import ConsumerData, SubscriptionData

_SHOWN_CHARS: Final = 64
_NAMED_CLIENTS: Final = 3

Wishes = Mapping[str, str]
"""What one member wants, in words: subject -> wish, such as `topic 'T'` -> `tags 'a || b'`."""


class Voice(NamedTuple):
    """One member: its client id, its address as text, and its wishes (None while it has not told them)."""

    client_id: str
    address: str
    wishes: Wishes | None


def wishes_of(data: ConsumerData) -> Wishes:
    """What a heartbeat asks for. Of very many topics only some are told apart, the others are compared as a whole."""
    wishes = {"the message model": data.message_model.value, "the consume type": data.consume_type.value}
    topics = sorted(
        (one for one in data.subscription_data_set if not one.topic.startswith(RETRY_PREFIX)), key=lambda one: one.topic
    )
    for one in topics[:WISHES_COMPARED_MAX]:
        wishes[f"topic {_short(one.topic)}"] = _expression(one)
    if len(topics) > WISHES_COMPARED_MAX:
        rest = hash(tuple((one.topic, one.expression_type, one.sub_string) for one in topics[WISHES_COMPARED_MAX:]))
        wishes["further topics"] = f"a set with the digest {rest & 0xFFFFFFFF:08x}"
    return wishes


def _expression(subscription: SubscriptionData) -> str:
    text = subscription.sub_string or EVERYTHING
    if subscription.expression_type not in (None, "", "TAG"):
        return f"{subscription.expression_type} {_short(text)}"
    return f"tags {_short(' || '.join(sorted({tag.strip() for tag in text.split('||')})))}"


def disagreements(voices: Iterable[Voice]) -> tuple[str, ...]:
    """One sentence for each thing on which members differ, and for each client id that stands for several connections."""
    members = list(voices)
    found = _shared_ids(members) + _different_wishes([voice for voice in members if voice.wishes is not None])
    if len(found) > GROUP_WARNINGS_MAX:
        found = [*found[: GROUP_WARNINGS_MAX - 1], f"and {len(found) - GROUP_WARNINGS_MAX + 1} more"]
    return tuple(found)


def _shared_ids(members: list[Voice]) -> list[str]:
    addresses: dict[str, list[str]] = {}
    for voice in members:
        addresses.setdefault(voice.client_id, []).append(voice.address)
    return [
        f"client id {_short(client_id)} is used by {len(known)} connections ({_some(known)}): "
        "if these are different programs, give each an instance name of its own"
        for client_id, known in sorted(addresses.items())
        if len(known) > 1
    ]


def _different_wishes(members: list[Voice]) -> list[str]:
    if all(voice.wishes == members[0].wishes for voice in members[1:]):
        return []
    subjects = dict.fromkeys(subject for voice in members for subject in voice.wishes or ())
    found = []
    for subject in sorted(subjects):
        sides: dict[str, list[str]] = {}
        for voice in members:
            wish = (voice.wishes or {}).get(subject, "nothing")
            sides.setdefault(wish, []).append(voice.client_id)
        if len(sides) > 1:
            said = "; ".join(f"{wish} by {_some(clients)}" for wish, clients in sorted(sides.items())[:_NAMED_CLIENTS])
            found.append(f"clients differ about {subject}: {said}")
    return found


def _some(names: list[str]) -> str:
    shown = ", ".join(_short(name, quoted=False) for name in sorted(names)[:_NAMED_CLIENTS])
    return shown if len(names) <= _NAMED_CLIENTS else f"{shown} and {len(names) - _NAMED_CLIENTS} more"


def _short(text: str, *, quoted: bool = True) -> str:
    """`text` cut to what a sentence bears; cut texts differ when the whole ones do."""
    if len(text) > _SHOWN_CHARS:
        text = f"{text[:_SHOWN_CHARS]}...#{hash(text) & 0xFFFFFFFF:08x}"
    return repr(text) if quoted else text
