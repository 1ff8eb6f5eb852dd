"""Policies as RocketMQ 5.5 applies them: some thousand signed requests of users with random policies, answered by its broker and by ours,
are denied as our evaluation denies them; and our client governs the users of both.

The seed is printed, and taken from ACCESS_SEED. (RocketMQ 5.3.3 sorts otherwise: decision record 0083.)
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from rig.brokers import BrokerUnderTest, Kind, known_callers
from rig.toolchain import NEW_VERSION, java_build
from rig.wire import QUERY_CONSUMER_OFFSET, SEND_V2, UPDATE_CONSUMER_OFFSET, Wire, frame, send_fields, signed
from tests.property.access_reference import Line, may, rank

import orbitmq
from orbitmq.access.evaluation import Permissions
from orbitmq.access.needed import Needed
from orbitmq.access.policies import Acl, read_entry
from orbitmq.client.admin import PolicyEntryInfo, PolicyInfo
from orbitmq.protocol.remoting.requests import Action, ResourceType

pytestmark = pytest.mark.java

USERS, REQUESTS_PER_USER, AT_ONCE = 60, 50, 60
ROOT, ROOT_SECRET = "root-user", "root-hush"
NO_PERMISSION = 16
AUTH_CREATE_USER, AUTH_GET_USER, AUTH_CREATE_ACL, GET_TOPIC_CONFIG, CONSUMER_LIST = 3001, 3004, 3006, 351, 38
SETTINGS = known_callers(ROOT, ROOT_SECRET) | {"autoCreateTopicEnable": "false", "waitTimeMillsInSendQueue": "60000"}
NAMES = ("a", "ab", "abc", "b")
ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.1.0.1")
SOURCES = ("127.0.0.1", "127.0.0.2", "127.0.0.0/24", "127.1.0.0/16", "0.0.0.0/0", "10.0.0.0/8", "::1", "2001:db8::/32")
CLUSTER = "DefaultCluster"


class Asked(NamedTuple):
    """One request of a user, and what it needs: all of these, one action of each."""

    user: str
    address: str
    code: int
    fields: Mapping[str, str]
    needs: tuple[tuple[str, tuple[str, ...]], ...]


@pytest.fixture(scope="module", params=list(Kind), ids=[kind.value for kind in Kind])
def guarded(
    request: pytest.FixtureRequest,
    available: Callable[[Callable[[], Any]], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BrokerUnderTest]:
    available(lambda: java_build(NEW_VERSION))
    folder = tmp_path_factory.mktemp("guarded")
    with BrokerUnderTest(request.param, folder, settings=SETTINGS, release=NEW_VERSION) as broker:
        yield broker


def test_policies_decide_as_in_rocketmq(guarded: BrokerUnderTest) -> None:
    seed = int(os.environ.get("ACCESS_SEED", random.randrange(2**32)))
    print(f"ACCESS_SEED={seed}")
    chance = random.Random(seed)
    has_ties = guarded.kind is Kind.JAVA  # ours refuses two entries about one resource
    policies = {f"judged-{os.urandom(4).hex()}-{number}": random_lines(chance, has_ties) for number in range(USERS)}
    with guarded.wire() as wire:
        for user, lines in policies.items():
            create(wire, user, lines)
    asked = [random_request(chance, user) for user in policies for _ in range(REQUESTS_PER_USER)]
    denied = answers(guarded.broker_port, asked)
    assert 0.2 < sum(denied) / len(denied) < 0.9, "too one-sided to judge anything"

    def differing(decides: Callable[[list[Line], str, tuple[str, ...], str], bool]) -> list[tuple[Asked, list[Line]]]:
        return [
            (one, policies[one.user])
            for one, is_denied in zip(asked, denied, strict=True)
            if is_denied is all(decides(policies[one.user], *need, one.address) for need in one.needs)
        ]

    assert differing(ours) == [], f"ACCESS_SEED={seed}"
    assert not has_ties or differing(allow_wins_a_tie), "no case has a tie"
    assert differing(lambda lines, *rest: may(lines, *rest, rank=lambda line: (len(line.resource),))), (
        "a prefix beats a name"
    )
    assert differing(lambda lines, *rest: ours([line._replace(sources=()) for line in lines], *rest)), "no sources"
    assert differing(lambda lines, *rest: ours([line._replace(policy="Custom") for line in lines], *rest)), "one policy"


def ours(lines: list[Line], resource: str, actions: tuple[str, ...], address: str) -> bool:
    custom, default = (
        tuple(read_entry(*line[1:]) for line in lines if line.policy == policy) for policy in ("Custom", "Default")
    )
    type_name, _, name = resource.partition(":")
    needed = Needed(ResourceType(type_name), name, frozenset(Action(action) for action in actions))
    return Permissions(Acl("judged", custom, default)).judge(needed, address).is_allowed


def allow_wins_a_tie(lines: list[Line], resource: str, actions: tuple[str, ...], address: str) -> bool:
    return may(lines, resource, actions, address, rank=lambda line: (*rank(line)[:-1], line.decision == "Deny"))


def random_lines(chance: random.Random, has_ties: bool) -> list[Line]:
    """Entries of one user; has_ties: several about one resource, as RocketMQ keeps them when they come in one request."""

    def resource() -> str:
        kind = chance.choice(["Topic", "Topic", "Group", "Cluster"])
        if kind == "Cluster":
            return chance.choice([f"Cluster:{CLUSTER}", "Cluster:Def*", "Cluster:other"])
        return chance.choice(["*", f"{kind}:*", *(f"{kind}:{name}{end}" for name in NAMES for end in ("", "*"))])

    lines = [
        Line(
            chance.choice(["Custom", "Custom", "Default"]),
            resource(),
            tuple(chance.choice([["All"], chance.sample(["Pub", "Sub", "Get", "Update"], 2)])),
            tuple(chance.choice([[], [], chance.sample(SOURCES, 2)])),
            chance.choice(["Allow", "Deny"]),
        )
        for _ in range(chance.randrange(10))
    ]
    return lines if has_ties else list({line[:2]: line for line in lines}.values())


def random_request(chance: random.Random, user: str) -> Asked:
    topic, group = chance.choice(NAMES), chance.choice(NAMES)
    on_topic, on_group = f"Topic:{topic}", f"Group:{group}"
    both = {"topic": topic, "queueId": "0", "consumerGroup": group}
    code, fields, needs = chance.choice(
        [
            (SEND_V2, send_fields(topic, 0, 0, ""), ((on_topic, ("Pub",)),)),
            (GET_TOPIC_CONFIG, {"topic": topic}, ((on_topic, ("Get",)),)),
            (QUERY_CONSUMER_OFFSET, both, ((on_topic, ("Sub", "Get")), (on_group, ("Sub", "Get")))),
            (
                UPDATE_CONSUMER_OFFSET,
                {**both, "commitOffset": "0"},
                ((on_topic, ("Sub", "Update")), (on_group, ("Sub", "Update"))),
            ),
            (CONSUMER_LIST, {"consumerGroup": group}, ((on_group, ("Sub", "Get")),)),
            (AUTH_GET_USER, {"username": "nobody"}, ((f"Cluster:{CLUSTER}", ("Get",)),)),
        ]
    )
    return Asked(user, chance.choice(ADDRESSES), code, fields, needs)


def create(wire: Wire, user: str, lines: list[Line]) -> None:
    info = {"username": user, "password": secret_of(user), "userType": "Normal"}
    body = json.dumps(info).encode()
    wire.call(AUTH_CREATE_USER, signed({"username": user}, body, ROOT, ROOT_SECRET), body)
    policies = [
        {
            "policyType": policy,
            "entries": [
                {
                    "resource": line.resource,
                    "actions": line.actions,
                    "sourceIps": line.sources,
                    "decision": line.decision,
                }
                for line in lines
                if line.policy == policy
            ],
        }
        for policy in sorted({line.policy for line in lines})
    ]
    if policies:
        subject = f"User:{user}"
        body = json.dumps({"subject": subject, "policies": policies}).encode()
        wire.call(AUTH_CREATE_ACL, signed({"subject": subject}, body, ROOT, ROOT_SECRET), body)


def answers(port: int, asked: list[Asked]) -> list[bool]:
    """Whether each request was denied."""
    denied: dict[int, bool] = {}
    for address in ADDRESSES:
        mine = [(number, one) for number, one in enumerate(asked) if one.address == address]
        with Wire(port, timeout_s=120, source=address) as wire:
            for start in range(0, len(mine), AT_ONCE):
                frames = [
                    frame(one.code, signed(one.fields, b"", one.user, secret_of(one.user)), number)
                    for number, one in mine[start : start + AT_ONCE]
                ]
                for head, _ in wire.ask_many(frames):
                    assert head["code"] != 2, head  # busy: it was not looked at
                    denied[head["opaque"]] = head["code"] == NO_PERMISSION
    return [denied[number] for number in range(len(asked))]


def secret_of(user: str) -> str:
    return f"secret of {user}"


async def test_our_client_governs_users_and_policies(guarded: BrokerUnderTest) -> None:
    user, topic, secret = f"governed-{os.urandom(4).hex()}", f"Governed{os.urandom(4).hex()}", "hush-of-governed"

    def options(name: str, password: str) -> orbitmq.ClientOptions:
        known = orbitmq.Credentials(name, password)
        return orbitmq.ClientOptions(credentials=known, request_timeout_ms=60_000, admin_timeout_ms=60_000)

    async with orbitmq.connect(guarded.name_server, options=options(ROOT, ROOT_SECRET)) as mq:
        admin = mq.admin
        await admin.create_topic(topic, queues_count=1)
        await admin.create_user(user, secret)
        (info,) = (await admin.user(user)).values()
        assert info is not None
        assert (info.username, info.user_type, info.user_status) == (user, "Normal", "enable")
        entry = PolicyEntryInfo(f"Topic:{topic}", ["Pub", "Get"], ["127.0.0.0/8"], "Allow")
        await admin.set_policies(user, [PolicyInfo("Custom", [entry])])
        await admin.set_policies(user, [PolicyInfo("Default", [PolicyEntryInfo("Group:*", ["Sub"], None, "Allow")])])
        (acls,) = (await admin.policies(user)).values()
        assert [policy.policy_type for policy in acls[0].policies] == ["Custom", "Default"]
        assert acls[0].policies[0].entries == [entry]
        async with orbitmq.connect(guarded.name_server, options=options(user, secret)) as theirs:
            await theirs.send(topic, b"allowed")
            await admin.set_policies(
                user, [PolicyInfo("Custom", [PolicyEntryInfo(f"Topic:{topic}", ["All"], None, "Deny")])]
            )
            with pytest.raises(orbitmq.OrbitError, match=r"16|NO_PERMISSION"):
                await theirs.send(topic, b"denied")
        await admin.delete_policies(user, f"Topic:{topic}")
        (left,) = (await admin.user_policies(user)).values()
        assert left is not None
        assert [policy.policy_type for policy in left.policies] == ["Default"]
        await admin.update_user(user, enabled=False)
        (users,) = (await admin.users(user)).values()
        assert [known.user_status for known in users] == ["disable"]
        await admin.delete_user(user)
        assert list((await admin.user(user)).values()) == [None]
