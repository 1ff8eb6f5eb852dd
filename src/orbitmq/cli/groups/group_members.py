"""`orbitmq group members` and `group subscriptions`: who is connected, with which queues, subscribed to what.

Rules of this file
1. Members are asked through their broker; one that does not answer is listed without what only it knows.
2. Members that subscribe differently are a finding: a broker keeps one subscription per group and topic, the last one it heard of,
   so messages are lost for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from orbitmq.cli.asking.cluster_access import GroupArgument, run
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.instants import instant
from orbitmq.cli.shared.output import note, show_rows

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.protocol.remoting.bodies import ConsumerRunningInfo


def members(group: GroupArgument) -> None:
    """Show the connected members of a group: address, language, version, queues, messages in work.

    What a broker says about members that differ, or share a client id, follows below.
    """

    async def work(client: Client) -> tuple[list[dict[str, object]], list[str]]:
        from orbitmq.protocol.remoting.versions import version_name

        connections = await client.admin.group_connections(group)
        told = await client.admin.members(group)
        rows: list[dict[str, object]] = []
        for member in connections.connection_set if connections else []:
            info = told.get(member.client_id)
            queues = list(info.mq_table.items()) if info is not None else []
            rows.append(
                {
                    "client_id": member.client_id,
                    "address": member.client_addr,
                    "language": member.language,
                    "version": version_name(member.version),
                    "answers": info is not None,
                    "queues": len(queues) if info is not None else None,
                    "in_work": sum(state.cached_msg_count for _, state in queues) if info is not None else None,
                    "started": instant(int(info.properties.get("PROP_CONSUMER_START_TIMESTAMP", "0")))
                    if info
                    else None,
                    "owned": [f"{queue.topic}:{queue.broker_name}/{queue.queue_id}" for queue, _ in queues],
                }
            )
        warnings = (connections.orbitmq_warnings or []) if connections else []
        return sorted(rows, key=lambda row: str(row["client_id"])), warnings

    columns = ("client_id", "address", "language", "version", "answers", "queues", "in_work", "started")
    rows, warnings = run(work)
    show_rows(rows, columns=columns, empty=f"group {group} has no members online")
    for warning in warnings:
        note(f"group {group}: {warning}")


def subscriptions(group: GroupArgument) -> None:
    """Show what each member of a group subscribes to; ends with 1 when members subscribe differently."""
    told = run(lambda client: client.admin.members(group))
    found = subscriptions_of(group, told)
    expected = usual_subscription(found)
    rows = [
        {
            "client_id": client_id,
            "topic": topic,
            "expression": (subscribed or {}).get(topic),
            "differs": subscribed is not None and subscribed.get(topic) != expected.get(topic),
            "answers": subscribed is not None,
        }
        for client_id, subscribed in sorted(found.items())
        for topic in sorted({*expected, *(subscribed or {})})
    ]
    columns = ("client_id", "topic", "expression", "differs", "answers")
    show_rows(rows, columns=columns, empty=f"group {group} has no members online")
    different = sorted({str(row["client_id"]) for row in rows if row["differs"]})
    if different:
        note(
            f"{len(different)} of {len(found)} members subscribe differently: {', '.join(different)} "
            "(members of one group need the same topics and expressions; otherwise messages are skipped)"
        )
        raise typer.Exit(ExitCode.FAILED)


def subscriptions_of(group: str, members: Mapping[str, ConsumerRunningInfo | None]) -> dict[str, dict[str, str] | None]:
    """Topic -> expression of each member, tags in order; None for one that did not answer. Retry topics are left out."""
    from orbitmq.protocol.names import retry_topic

    return {
        client_id: None
        if info is None
        else {
            data.topic: _normal(data.sub_string or "*")
            for data in info.subscription_set
            if data.topic != retry_topic(group)
        }
        for client_id, info in members.items()
    }


def usual_subscription(found: Mapping[str, dict[str, str] | None]) -> dict[str, str]:
    """What most members subscribe to; of equally frequent ones that of the first client id."""
    counted = Counter(tuple(sorted(topics.items())) for _, topics in sorted(found.items()) if topics is not None)
    return dict(counted.most_common(1)[0][0]) if counted else {}


def _normal(expression: str) -> str:
    tags = [tag.strip() for tag in expression.split("||")]
    return " || ".join(sorted(set(tags)))
