"""What it costs to know who calls and to judge it: processor time of the gate for one send, and how soon a change counts.

    python benchmarks/gate.py [--users 1000] [--entries 100]

Every user has as many entries, half of them exact topics and half prefixes. The sends are those of a Java producer with 100 bytes of
body, each signed by another user. The gate is asked as a broker asks it; nothing is sent or stored.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from orbitmq.access.authentication import Authentication
from orbitmq.access.needed import Needed, needs_of
from orbitmq.access.policies import Acl, Decision, Entry, PolicyType, read_resource
from orbitmq.access.table import AccessTable
from orbitmq.access.users import User, UserType
from orbitmq.access.users_gate import GateRules, UsersGate
from orbitmq.clock import SystemClock
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command, decode, encode, request
from orbitmq.protocol.remoting.requests import REQUESTS, Action, ResourceType
from orbitmq.protocol.signing import Credentials

ADDRESS = "10.0.0.9"
ROUNDS = 7
SEND = REQUESTS[RequestCode.SEND_MESSAGE_V2]
FIELDS = {
    "a": "producers", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
    "i": "UNIQ_KEY\x010A0000090000000000000000000000A1\x02WAIT\x01true\x02TAGS\x01paid\x02", "j": "0", "k": "false",
    "l": "16", "m": "false", "n": "broker-a",
}  # fmt: skip


class Connection:
    """As much of a connection as a gate looks at."""

    address = (ADDRESS, 40_000)
    host = pack_host(*address)

    def __init__(self) -> None:
        self.attachments: dict[str, object] = {}


def entry(resource: str) -> Entry:
    return Entry(read_resource(resource), frozenset({Action.PUB}), (), Decision.ALLOW)


def filled(users: int, entries: int) -> tuple[AccessTable, User]:
    """A table, and the user who made it."""
    root = User("root", "secret-of-root", UserType.SUPER)
    table = AccessTable()
    table.create_at_start(root)
    half = entries // 2
    names = [f"Topic:topic-{number}" for number in range(half)] + [
        f"Topic:team-{number}-*" for number in range(half - 1)
    ]
    acl = tuple(entry(name) for name in [*names, "Topic:orders"])
    for number in range(users):
        table.create_user(User(f"user-{number}", f"secret-of-{number}"), root)
        table.merge_acl(Acl(f"user-{number}", acl), root)
    return table, root


def us(work: Callable[[Command], object], commands: list[Command]) -> float:
    """Processor microseconds of one call, the median of some rounds."""
    figures = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        for command in commands:
            work(command)
        figures.append((time.process_time_ns() - began) / len(commands) / 1_000)
    return sorted(figures)[ROUNDS // 2]


def main() -> None:
    options = argparse.ArgumentParser(description="cost of knowing and judging callers")
    options.add_argument("--users", type=int, default=1_000)
    options.add_argument("--entries", type=int, default=100)
    arguments = options.parse_args()
    table, root = filled(arguments.users, arguments.entries)
    gate, connection = UsersGate(table, GateRules("DefaultCluster"), SystemClock()), Connection()
    commands = []
    for number in range(arguments.users):
        signed = Credentials(f"user-{number}", f"secret-of-{number}").signed(FIELDS, b"x" * 100)
        commands += [decode(encode(request(SEND.code, signed, b"x" * 100)))] * 20

    def admit(command: Command) -> None:
        gate.admit(command, connection, lambda _: ())  # type: ignore[arg-type]

    def decide(command: Command) -> None:
        permissions = table.permissions(command.fields["AccessKey"])
        assert permissions is not None
        assert permissions.judge(needed, ADDRESS).is_allowed

    authentication, needed = Authentication(table.user), Needed(ResourceType.TOPIC, "orders", frozenset({Action.PUB}))
    us(admit, commands)  # everything is made ready once
    print(f"{arguments.users} users with {arguments.entries} entries each")
    print(f"a send, signed and judged  {us(admit, commands):6.2f} us")
    print(f"  its signature            {us(authentication.caller, commands):6.2f} us")
    print(
        f"  what it needs            {us(lambda c: needs_of(c, SEND, 'DefaultCluster', lambda _: ()), commands):6.2f} us"
    )
    print(f"  the decision             {us(decide, commands):6.2f} us")
    began = time.perf_counter_ns()
    table.merge_acl(Acl("user-0", (entry("Topic:new"),)), root)
    admit(commands[0])
    table.delete_acl("user-0", root, PolicyType.CUSTOM, read_resource("Topic:new"))
    admit(commands[0])
    print(f"two changes, each judged   {(time.perf_counter_ns() - began) / 1e6:6.2f} ms")


if __name__ == "__main__":
    main()
