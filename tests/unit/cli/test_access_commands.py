"""`orbitmq access` against a server that answers from a script."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_server import Ran, ScriptedServer

from orbitmq.protocol.remoting.bodies import (
    AclInfo,
    BrokerData,
    ClusterInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from orbitmq.protocol.remoting.codes import RequestCode

Run = Callable[..., Ran]
SECRET = "s3cr3t-of-alice"
ALICE = UserInfo("alice", SECRET, "Normal", "enable")
POLICIES = AclInfo(
    "User:alice",
    [
        PolicyInfo(
            "Custom",
            [
                PolicyEntryInfo("Topic:orders*", ["Pub"], ["10.0.0.0/8"], "Allow"),
                PolicyEntryInfo("Topic:orders-old", ["All"], None, "Deny"),
            ],
        ),
        PolicyInfo("Default", [PolicyEntryInfo("Group:*", ["Sub"], None, "Allow")]),
    ],
)


@pytest.fixture
def cluster(server: ScriptedServer) -> ScriptedServer:
    """Two brokers that say the same, on the port of the name server."""
    brokers = {
        name: BrokerData(broker_name=name, broker_addrs={0: server.address}, cluster="Main")
        for name in ("broker-a", "broker-b")
    }
    info = ClusterInfo(broker_addr_table=brokers, cluster_addr_table={"Main": list(brokers)})
    server.on(RequestCode.GET_BROKER_CLUSTER_INFO, info.encode())
    server.on(RequestCode.AUTH_LIST_USER, b"[%b]" % ALICE.encode())
    server.on(RequestCode.AUTH_GET_USER, ALICE.encode())
    server.on(RequestCode.AUTH_LIST_ACL, b"[%b]" % POLICIES.encode())
    server.on(RequestCode.AUTH_GET_ACL, POLICIES.encode())
    for code in (
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
    ):
        server.on(code)
    return server


def asked(cluster: ScriptedServer, code: RequestCode) -> list[tuple[dict[str, str], bytes]]:
    return [(dict(command.fields), bytes(command.body)) for command in cluster.asked if command.code == code]


def test_users_are_listed_without_passwords(orbitmq: Run, cluster: ScriptedServer) -> None:
    table = orbitmq("access", "user", "list", "-n", cluster.address)
    assert table.out.splitlines()[1].split() == ["alice", "Normal", "enable", "broker-a,", "broker-b"]
    (row,) = json.loads(orbitmq("access", "user", "show", "alice", "-n", cluster.address, "--json").out)
    assert row == {
        "username": "alice",
        "userType": "Normal",
        "userStatus": "enable",
        "brokers": ["broker-a", "broker-b"],
    }
    told = orbitmq("access", "user", "list", "--passwords", "-n", cluster.address, "--json").out
    assert json.loads(told)[0]["password"] == SECRET
    shown = orbitmq("access", "user", "list", "--passwords", "-n", cluster.address)
    assert (shown.code, SECRET in shown.out + shown.err, "--json" in shown.err) == (2, False, True)
    cluster.on(RequestCode.AUTH_GET_USER)
    assert orbitmq("access", "user", "show", "bob", "-n", cluster.address).code == 5


def test_a_password_comes_from_a_pipe_a_file_or_a_command(
    orbitmq: Run, cluster: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{SECRET}\n"))
    for options in ((), ("--password-file", file), ("--password-command", f"cat {file}")):
        ran = orbitmq("access", "user", "create", "bob", "--super", *options, "-b", "broker-b", "-n", cluster.address)
        assert ran.code == 0, ran.err
        assert SECRET not in ran.out + ran.err
    created = asked(cluster, RequestCode.AUTH_CREATE_USER)
    assert len(created) == 3
    for fields, body in created:
        assert fields["username"] == "bob"
        assert json.loads(body) == {"username": "bob", "password": SECRET, "userType": "Super"}
    for nothing in (io.StringIO(), None):
        monkeypatch.setattr("sys.stdin", nothing)
        empty = orbitmq("access", "user", "create", "bob", "-n", cluster.address)
        assert (empty.code, "the password is empty" in empty.err) == (2, True)


def test_only_what_is_given_of_a_user_changes(orbitmq: Run, cluster: ScriptedServer) -> None:
    assert orbitmq("access", "user", "update", "alice", "--disable", "-b", "broker-a", "-n", cluster.address).code == 0
    assert json.loads(asked(cluster, RequestCode.AUTH_UPDATE_USER)[0][1]) == {
        "username": "alice",
        "userStatus": "disable",
    }
    assert orbitmq("access", "user", "update", "alice", "-n", cluster.address).code == 2
    assert orbitmq("access", "user", "delete", "alice", "--yes", "-n", cluster.address).code == 0
    assert len(asked(cluster, RequestCode.AUTH_DELETE_USER)) == 2


def test_policies_are_listed_by_entry(orbitmq: Run, cluster: ScriptedServer) -> None:
    table = orbitmq("access", "policy", "list", "-n", cluster.address).out.splitlines()
    assert [line.split()[:3] for line in table[1:]] == [
        ["alice", "Custom", "Topic:orders*"],
        ["alice", "Custom", "Topic:orders-old"],
        ["alice", "Default", "Group:*"],
    ]
    (document,) = json.loads(orbitmq("access", "policy", "show", "alice", "-n", cluster.address, "--json").out)
    assert document["subject"] == "User:alice"
    assert AclInfo.from_value(document).policies == POLICIES.policies


def test_an_entry_is_set_and_deleted(orbitmq: Run, cluster: ScriptedServer) -> None:
    line = ("access", "policy", "set", "alice", "Topic:a", "group:g", "-a", "pub,Sub", "--from", "10.0.0.0/8", "--deny")
    assert orbitmq(*line, "-b", "broker-a", "-n", cluster.address).code == 0
    ((fields, body),) = asked(cluster, RequestCode.AUTH_UPDATE_ACL)
    assert fields["subject"] == "User:alice"
    (policy,) = AclInfo.decode(body).policies
    assert policy.policy_type == "Custom"
    assert [(each.resource, each.source_ips, each.decision) for each in policy.entries] == [
        ("Topic:a", ["10.0.0.0/8"], "Deny"),
        ("Group:g", ["10.0.0.0/8"], "Deny"),
    ]
    assert orbitmq("access", "policy", "delete", "alice", "Topic:a", "--default", "-n", cluster.address).code == 0
    fields, _ = asked(cluster, RequestCode.AUTH_DELETE_ACL)[0]
    assert (fields["resource"], fields["policyType"]) == ("Topic:a", "Default")


@pytest.mark.parametrize(
    "words", [("Queue:q", "-a", "Pub"), ("Topic:a", "-a", "Fly"), ("Topic:a", "-a", "Pub", "--from", "x")]
)
def test_an_entry_that_means_nothing_is_not_sent(orbitmq: Run, cluster: ScriptedServer, words: tuple[str, ...]) -> None:
    assert orbitmq("access", "policy", "set", "alice", *words, "-n", cluster.address).code == 2
    assert asked(cluster, RequestCode.AUTH_UPDATE_ACL) == []


@pytest.mark.parametrize(
    ("line", "result", "because"),
    [
        ("Pub Topic:orders-new --from 10.1.2.3", "allowed", "Custom Allow Pub on Topic:orders* from 10.0.0.0/8"),
        ("Pub Topic:orders-new", "denied", "no entry applies"),
        ("Pub Topic:orders-old --from 10.1.2.3", "denied", "Custom Deny All on Topic:orders-old"),
        ("Sub|Get Group:shop", "allowed", "Default Allow Sub on Group:*"),
        ("List Topic:*", "denied", "Custom Deny All on Topic:orders-old"),
        ("Pub Topic:%RETRY%shop", "allowed", "Default Allow Sub on Group:*"),
    ],
)
def test_explain_names_the_entry(orbitmq: Run, cluster: ScriptedServer, line: str, result: str, because: str) -> None:
    ran = orbitmq("access", "explain", "alice", *line.split(), "-b", "broker-a", "-n", cluster.address, "--json")
    (row,) = json.loads(ran.out)
    assert (row["result"], row["because"], ran.code) == (result, because, int(result == "denied"))


def test_explain_a_request(orbitmq: Run, cluster: ScriptedServer) -> None:
    line = (
        "access",
        "explain",
        "alice",
        "--request",
        "PULL_MESSAGE",
        "-t",
        "orders-old",
        "-g",
        "shop",
        "-b",
        "broker-a",
    )
    rows = json.loads(orbitmq(*line, "-n", cluster.address, "--json").out)
    assert {(row["needs"], row["result"]) for row in rows} == {
        ("Sub Topic:orders-old", "denied"),
        ("Sub Group:shop", "allowed"),
    }
    retry = ("--request", "PULL_MESSAGE", "-t", "%RETRY%shop", "-g", "shop", "-b", "broker-a")
    rows = json.loads(orbitmq("access", "explain", "alice", *retry, "-n", cluster.address, "--json").out)
    assert [(row["needs"], row["result"]) for row in rows] == [("Sub Group:shop", "allowed")]
    missing = orbitmq("access", "explain", "alice", "--request", "11", "-n", cluster.address)
    assert (missing.code, "--topic" in missing.err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("--request", "10", "-t", ""),
        ("--request", "10", "-t", "%RETRY%"),
        ("Pub", "Topic:%RETRY%"),
        ("Pub", "Topic:a", "--from", "10.0.0.0/8"),
        ("Pub", "Topic:a", "--from", "somewhere"),
    ],
)
def test_what_no_request_can_be_like_is_not_explained(
    orbitmq: Run, cluster: ScriptedServer, words: tuple[str, ...]
) -> None:
    assert orbitmq("access", "explain", "alice", *words, "-b", "broker-a", "-n", cluster.address).code == 2


def test_users_decide_before_policies(orbitmq: Run, cluster: ScriptedServer) -> None:
    line = ("access", "explain", "alice", "Pub", "Topic:a", "-b", "broker-a", "-n", cluster.address, "--json")
    for user, because in (
        (UserInfo("alice", None, "Super", "enable").encode(), "a super user may do everything"),
        (UserInfo("alice", None, "Super", "disable").encode(), "the user is disabled"),
        (b"", "there is no such user"),
    ):
        cluster.on(RequestCode.AUTH_GET_USER, user)
        assert json.loads(orbitmq(*line).out)[0]["because"] == because


def test_import_leaves_users_that_exist(orbitmq: Run, cluster: ScriptedServer, tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(
        "accounts:\n- {accessKey: bobs-key, secretKey: 12345678, topicPerms: [a=PUB], whiteRemoteAddress: 10.0.0.1}\n"
    )
    line = ("access", "import", file, "-b", "broker-a", "-n", cluster.address, "--json")
    dry = orbitmq(*line, "--dry-run")
    assert json.loads(dry.out) == [{"user": "bobs-key", "done": "created", "entries": 1, "broker": "broker-a"}]
    assert asked(cluster, RequestCode.AUTH_CREATE_USER) == []
    ran = orbitmq(*line)
    assert "12345678" not in ran.out + ran.err
    assert "whiteRemoteAddress" in ran.err
    assert json.loads(asked(cluster, RequestCode.AUTH_CREATE_USER)[0][1])["password"] == "12345678"
    (entry,) = AclInfo.decode(asked(cluster, RequestCode.AUTH_UPDATE_ACL)[0][1]).policies[0].entries
    assert (entry.resource, entry.actions, entry.decision) == ("Topic:a", ["Pub"], "Allow")
    file = tmp_path / "all.json"
    users = json.loads(orbitmq("access", "user", "list", "--passwords", "-n", cluster.address, "--json").out)
    policies = json.loads(orbitmq("access", "policy", "list", "-n", cluster.address, "--json").out)
    file.write_text(json.dumps({"users": users, "policies": policies}))
    (row,) = json.loads(orbitmq("access", "import", file, "-b", "broker-b", "-n", cluster.address, "--json").out)
    assert row["done"] == "already so"


@pytest.mark.parametrize(
    ("changed", "policies", "done"),
    [
        ({}, None, "left as it is, differs: policies"),
        ({"userType": "Super"}, POLICIES.encode(), "left as it is, differs: type"),
        ({"password": "another"}, POLICIES.encode(), "left as it is, differs: password"),
        ({"password": "another", "userStatus": "disable"}, b"", "left as it is, differs: password, status, policies"),
        ({"password": None}, POLICIES.encode(), "already so"),
    ],
    ids=["half done", "type", "password", "much", "a caller who is not told passwords"],
)
def test_a_repeated_import_says_what_differs_and_changes_nothing(
    orbitmq: Run, cluster: ScriptedServer, tmp_path: Path, changed: dict[str, object], policies: bytes | None, done: str
) -> None:
    file = tmp_path / "all.json"
    file.write_text(json.dumps([json.loads(ALICE.encode()), json.loads(POLICIES.encode())]))
    known = {**json.loads(ALICE.encode()), **changed}
    cluster.on(RequestCode.AUTH_LIST_USER, json.dumps([known]).encode())
    cluster.on(RequestCode.AUTH_GET_ACL, policies or b"")
    ran = orbitmq("access", "import", file, "-b", "broker-a", "-n", cluster.address, "--json")
    (row,) = json.loads(ran.out)
    assert row["done"] == done
    assert "another" not in ran.out + ran.err
    for code in (RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_UPDATE_ACL):
        assert asked(cluster, code) == []


def test_a_user_that_is_disabled_is_never_enabled_by_an_import(
    orbitmq: Run, cluster: ScriptedServer, tmp_path: Path
) -> None:
    file = tmp_path / "all.json"
    file.write_text(
        json.dumps([{"username": "bob", "password": SECRET, "userType": "Normal", "userStatus": "disable"}])
    )
    orbitmq("access", "import", file, "-b", "broker-a", "-n", cluster.address)
    (asked_for,) = asked(cluster, RequestCode.AUTH_CREATE_USER)
    assert json.loads(asked_for[1])["userStatus"] == "disable"


@pytest.mark.parametrize(
    "text",
    [
        f'[{{"username":"bob","password":"{SECRET}"',
        f'{{"a":"{SECRET}"}}x',
        f'["{SECRET}"]',
        f'[{{"password":"{SECRET}"}}]',
    ],
)
def test_a_file_that_means_nothing_is_not_quoted(
    orbitmq: Run, cluster: ScriptedServer, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "all.json"
    file.write_text(text)
    ran = orbitmq("access", "import", file, "-n", cluster.address)
    assert ran.code == 2
    assert SECRET not in ran.out + ran.err
    assert cluster.asked == []
