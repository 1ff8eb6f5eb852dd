"""Whether the members of a consumer group want the same, and are who they say.

The protocol keeps one subscription table per group, which every heartbeat overwrites: members that subscribe
differently take each other's messages away, and nobody is told. Two programs with one client id are taken for one client
by whoever allocates queues.

Rules of this file
1. Nothing is refused: RocketMQ does not either, and a group that is being redeployed disagrees for a while. It is said.
2. Pure: members in, sentences out. Who asks decides when, and whether to say it again.
3. Retry topics do not count: clients of different kinds subscribe to them in their own ways.
4. What is remembered of a member is bounded, however long its subscriptions are; so is how many members are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nsmallest
from itertools import islice
from typing import Final, NamedTuple

from orbitmq.limits.broker import GROUP_WARNINGS_MAX, MEMBERS_COMPARED_MAX, WISHES_COMPARED_MAX
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
    members = list(islice(voices, MEMBERS_COMPARED_MAX))
    sharing = _sharing(members)
    wishing = [voice for voice in members if voice.wishes is not None]
    differing = _differing(wishing)
    count = len(sharing) + len(differing)
    shown = count if count <= GROUP_WARNINGS_MAX else GROUP_WARNINGS_MAX - 1
    found = [_shared_id(client_id, sharing[client_id]) for client_id in nsmallest(shown, sharing)]
    found += [_difference(subject, wishing) for subject in nsmallest(shown - len(found), differing)]
    return (*found, f"and {count - shown} more") if shown < count else tuple(found)


def _sharing(members: list[Voice]) -> dict[str, list[str]]:
    """Client ids that stand for several connections, and the addresses of those."""
    addresses: dict[str, list[str]] = {}
    for voice in members:
        addresses.setdefault(voice.client_id, []).append(voice.address)
    return {client_id: known for client_id, known in addresses.items() if len(known) > 1}


def _shared_id(client_id: str, addresses: list[str]) -> str:
    return (
        f"client id {_short(client_id)} is used by {len(addresses)} connections ({_some(addresses)}): "
        "if these are different programs, give each an instance name of its own"
    )


def _differing(members: list[Voice]) -> set[str]:
    """Subjects of which not all members want the same."""
    counts = Counter(wish for voice in members for wish in (voice.wishes or {}).items())
    return {subject for (subject, _), count in counts.items() if count < len(members)}


def _difference(subject: str, members: list[Voice]) -> str:
    sides: dict[str, list[str]] = {}
    for voice in members:
        sides.setdefault((voice.wishes or {}).get(subject, "nothing"), []).append(voice.client_id)
    said = "; ".join(f"{wish} by {_some(clients)}" for wish, clients in sorted(sides.items())[:_NAMED_CLIENTS])
    return f"clients differ about {subject}: {said}"


def _some(names: list[str]) -> str:
    shown = ", ".join(_short(name, quoted=False) for name in sorted(names)[:_NAMED_CLIENTS])
    return shown if len(names) <= _NAMED_CLIENTS else f"{shown} and {len(names) - _NAMED_CLIENTS} more"


def _short(text: str, *, quoted: bool = True) -> str:
    """`text` cut to what a sentence bears; cut texts differ when the whole ones do."""
    if len(text) > _SHOWN_CHARS:
        text = f"{text[:_SHOWN_CHARS]}...#{hash(text) & 0xFFFFFFFF:08x}"
    return repr(text) if quoted else text
