"""`orbitmq cluster restart`: the command, against brokers that answer from a script. What is done when: `test_one_by_one`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from scripted_server import Ran, ScriptedServer

from orbitmq.cli.restarting import cluster_restart, restart_mark
from orbitmq.cli.restarting.cluster_restart import command_for
from orbitmq.cli.restarting.cluster_watch import senders_of, troubles_of
from orbitmq.cli.restarting.one_by_one import ClusterMember
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    HaRuntimeInfo,
    KVTable,
    QueueData,
    TopicConfig,
    TopicConfigWrapper,
    TopicRouteData,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

Run = Callable[..., Ran]
QUICK = ("--yes", "--one-by-one", "--route-interval", "20ms", "--start-wait", "5s", "--wait", "5s")


class Scene:
    """Brokers a and b, the name server at the port of a. A broker has begun anew when the file of its name is there."""

    def __init__(self, server: ScriptedServer, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.wiped: set[str] = set()
        self.clusters = {"Main": ["a", "b"]}
        self.topics = {"a": ["orders"], "b": ["orders"]}
        self.sent_ago_ms = 1_000_000
        self.others = ScriptedServer()
        self.addresses = {"a": server.address, "b": self.others.address}
        server.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda command: (0, None, {}, self._cluster())
        server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda command: (0, None, {}, self._route(command))
        server.answers[RequestCode.WIPE_WRITE_PERM_OF_BROKER] = self._wipe
        server.answers[RequestCode.ADD_WRITE_PERM_OF_BROKER] = self._give_back
        self.values: dict[str, str] = {}
        server.answers[RequestCode.GET_KV_CONFIG] = self._value
        server.answers[RequestCode.PUT_KV_CONFIG] = self._put
        server.answers[RequestCode.DELETE_KV_CONFIG] = self._delete
        for name, broker in (("a", server), ("b", self.others)):
            broker.on(RequestCode.GET_BROKER_HA_STATUS, HaRuntimeInfo(True, 0, 0, []).encode())
            broker.answers[RequestCode.GET_BROKER_RUNTIME_INFO] = lambda command, name=name: (
                0,
                None,
                {},
                self._facts(name),
            )
            broker.answers[RequestCode.GET_ALL_TOPIC_CONFIG] = lambda command, name=name: (
                0,
                None,
                {},
                self._topics(name),
            )

    def asked(self, code: RequestCode) -> list[str]:
        return [fields["brokerName"] for fields in self.server.fields_of(code)]

    def _began_anew(self, name: str) -> bool:
        return (self.directory / name).exists()

    def _data(self, name: str) -> BrokerData:
        return BrokerData(broker_name=name, broker_addrs={0: self.addresses[name]}, cluster="Main")

    def _cluster(self) -> bytes:
        names = {name for names in self.clusters.values() for name in names}
        return ClusterInfo({name: self._data(name) for name in sorted(names)}, self.clusters).encode()

    def _route(self, command: Command) -> bytes:
        name = command.fields["topic"]
        if self._began_anew(name):
            self.wiped.discard(name)
        queues = QueueData(name, 1, 1, 4 if name in self.wiped else 6)
        return TopicRouteData(queue_datas=[queues], broker_datas=[self._data(name)]).encode()

    def _facts(self, name: str) -> bytes:
        began = "1700000005000" if self._began_anew(name) else "1700000000000"
        return KVTable({"bootTimestamp": began, "orbitmqLastSendAgoMillis": str(self.sent_ago_ms)}).encode()

    def _topics(self, name: str) -> bytes:
        topics = {topic: TopicConfig(topic_name=topic) for topic in (*self.topics[name], "TBW102", "%RETRY%g", name)}
        return TopicConfigWrapper(topic_config_table=topics).encode()

    def _value(self, command: Command) -> tuple[int, None, dict[str, str], bytes]:
        found = self.values.get(command.fields["key"])
        return (ResponseCode.QUERY_NOT_FOUND, None, {}, b"") if found is None else (0, None, {"value": found}, b"")

    def _put(self, command: Command) -> tuple[int, None, dict[str, str], bytes]:
        self.values[command.fields["key"]] = command.fields["value"]
        return 0, None, {}, b""

    def _delete(self, command: Command) -> tuple[int, None, dict[str, str], bytes]:
        self.values.pop(command.fields["key"], None)
        return 0, None, {}, b""

    def _wipe(self, command: Command) -> tuple[int, None, dict[str, str], bytes]:
        self.wiped.add(command.fields["brokerName"])
        return 0, None, {"wipeTopicCount": "1"}, b""

    def _give_back(self, command: Command) -> tuple[int, None, dict[str, str], bytes]:
        self.wiped.discard(command.fields["brokerName"])
        return 0, None, {"addTopicCount": "1"}, b""


@pytest.fixture
def scene(server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(cluster_restart, "RESTART_LOOK_S", 0.01)
    monkeypatch.setattr(restart_mark, "RESTART_MARK_S", 0.02)
    monkeypatch.setattr(restart_mark, "RESTART_MARK_SETTLE_S", 0.01)
    scene = Scene(server, tmp_path)
    yield scene
    scene.others.close()


def restart(orbitmq: Run, scene: Scene, *options: object) -> Ran:
    return orbitmq("cluster", "restart", "-n", scene.server.address, *QUICK, *options)


def test_every_broker_is_restarted_by_the_command(orbitmq: Run, scene: Scene) -> None:
    done = restart(orbitmq, scene, "--restart-command", f"touch {scene.directory}/{{broker}}")
    assert done.code == 0
    a, b = scene.addresses.values()
    assert done.err.splitlines()[-1] == f"restarted: a ({a}), b ({b})"
    assert scene.asked(RequestCode.WIPE_WRITE_PERM_OF_BROKER) == ["a", "b"]
    assert scene.asked(RequestCode.ADD_WRITE_PERM_OF_BROKER) == []
    assert "warning" not in done.err


def test_json_has_a_line_for_each_step_and_one_for_the_end(orbitmq: Run, scene: Scene) -> None:
    done = restart(orbitmq, scene, "--json", "--restart-command", f"touch {scene.directory}/{{broker}}")
    *steps, end = map(json.loads, done.out.splitlines())
    assert [(step["broker"], step["doing"]) for step in steps if step["doing"] != "say"] == [
        ("a", "take write permission"),
        ("a", "restart"),
        ("b", "take write permission"),
        ("b", "restart"),
    ]
    assert end == {"restarted": [scene.addresses["a"], scene.addresses["b"]], "failure": None}


def test_a_command_that_fails_ends_it_with_1_and_the_permission_is_given_back(orbitmq: Run, scene: Scene) -> None:
    done = restart(orbitmq, scene, "--restart-command", "exit 3")
    assert done.code == 1
    assert "failed: `exit 3` ended with 3; 0 restarted" in done.err
    assert scene.asked(RequestCode.ADD_WRITE_PERM_OF_BROKER) == ["a"]
    assert not (scene.directory / "b").exists()


def test_permission_that_cannot_be_given_back_is_said_beside_what_ended_it(orbitmq: Run, scene: Scene) -> None:
    scene.server.answers[RequestCode.ADD_WRITE_PERM_OF_BROKER] = lambda command: (1, "no thread is free", {}, b"")
    done = restart(orbitmq, scene, "--json", "--restart-command", "exit 3")
    assert done.code == 1
    failure = json.loads(done.out.splitlines()[-1])["failure"]
    assert "ended with 3; 0 restarted" in failure
    assert "changing the permission of a" in failure
    assert "no thread is free" in failure


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_keep_it_from_giving_the_permission_back(
    orbitmq: Run, scene: Scene, number: signal.Signals
) -> None:
    """The first comes while a broker is restarted, the second while the end looks at the cluster once more."""
    told = scene._facts

    def facts(name: str) -> bytes:
        if (scene.directory / "first").exists():
            os.kill(os.getpid(), number)
            time.sleep(0.05)  # so that it is there before the answer
        return told(name)

    scene._facts = facts  # type: ignore[method-assign]
    command = f"touch {scene.directory}/first; kill -{number.value} {os.getpid()}; sleep 0.1"
    done = restart(orbitmq, scene, "--restart-command", command)
    assert (done.code, scene.wiped) == (130, set())
    assert "write permission is given back first" in done.err
    assert "interrupted; 0 restarted, it was the turn of a" in done.err.splitlines()[-1]


def test_two_at_once_are_refused_and_a_mark_is_taken_away_at_the_end(orbitmq: Run, scene: Scene) -> None:
    counts = iter(range(1_000))
    scene.server.answers[RequestCode.GET_KV_CONFIG] = lambda command: (0, None, {"value": another(next(counts))}, b"")
    done = restart(orbitmq, scene, "--restart-command", "true")
    assert (done.code, scene.asked(RequestCode.WIPE_WRITE_PERM_OF_BROKER)) == (1, [])
    assert "restarted by another command already: process 7 on far" in done.err
    scene.server.answers[RequestCode.GET_KV_CONFIG] = scene._value
    done = restart(orbitmq, scene, "--restart-command", f"touch {scene.directory}/{{broker}}")
    assert (done.code, scene.values) == (0, {})


def test_what_a_killed_command_had_taken_is_given_back_first(orbitmq: Run, scene: Scene) -> None:
    scene.values["Main"], scene.wiped = another(3, "b"), {"b"}
    done = restart(orbitmq, scene, "--restart-command", f"touch {scene.directory}/{{broker}}")
    assert done.code == 0, done.err
    assert "b has its write permission back, which a command had taken that was killed" in done.err
    assert scene.asked(RequestCode.ADD_WRITE_PERM_OF_BROKER) == ["b"]
    assert scene.asked(RequestCode.WIPE_WRITE_PERM_OF_BROKER) == ["a", "b"]
    assert (scene.wiped, scene.values) == (set(), {})


def test_who_loses_the_mark_to_another_command_ends_and_gives_back(orbitmq: Run, scene: Scene) -> None:
    """It slept so long that the other one took it for dead."""

    def wipe(command: Command) -> tuple[int, None, dict[str, str], bytes]:
        scene.values["Main"] = another(1)
        scene.server.answers[RequestCode.PUT_KV_CONFIG] = lambda command: (
            0,
            None,
            {},
            b"",
        )  # it writes its own over ours
        return scene._wipe(command)

    scene.server.answers[RequestCode.WIPE_WRITE_PERM_OF_BROKER] = wipe
    scene.sent_ago_ms = 0
    done = restart(orbitmq, scene, "--restart-command", f"touch {scene.directory}/{{broker}}")
    assert (done.code, scene.wiped) == (1, set())
    assert "restarted by another command already" in done.err
    assert scene.values == {"Main": another(1)}, "and leaves the other one's"


def another(count: int, *taken: str) -> str:
    """The mark of another command."""
    mark = restart_mark.MarkText("other", "process 7 on far", count, taken)
    return msgspec.json.encode(mark).decode()


def test_the_only_broker_keeps_its_permission(orbitmq: Run, scene: Scene) -> None:
    scene.clusters = {"Main": ["a"]}
    done = restart(orbitmq, scene, "--restart-command", f"touch {scene.directory}/{{broker}}")
    assert done.code == 0
    assert "warning: a is the only broker: sends wait while it is away" in done.err
    assert scene.asked(RequestCode.WIPE_WRITE_PERM_OF_BROKER) == []


def test_a_broker_with_topics_of_its_own_keeps_its_permission_and_they_are_named(orbitmq: Run, scene: Scene) -> None:
    scene.topics["b"].append("only-here")
    done = restart(orbitmq, scene, "--restart-command", f"touch {scene.directory}/{{broker}}")
    assert done.code == 0
    assert "warning: no other broker takes only-here: b keeps its write permission" in done.err
    assert scene.asked(RequestCode.WIPE_WRITE_PERM_OF_BROKER) == ["a"]


def test_who_was_started_since_is_passed_over(orbitmq: Run, scene: Scene) -> None:
    (scene.directory / "a").touch()
    command = f"touch {scene.directory}/{{broker}}"
    done = restart(orbitmq, scene, "--since", "1700000003000", "--restart-command", command)
    assert (done.code, done.err.splitlines()[-1]) == (0, f"restarted: b ({scene.addresses['b']})")
    assert scene.asked(RequestCode.WIPE_WRITE_PERM_OF_BROKER) == ["b"]


def test_nothing_is_touched_while_an_expected_broker_is_missing(orbitmq: Run, scene: Scene) -> None:
    """Else it would be passed over, and the command would say that all were restarted."""
    assert orbitmq("context", "add", "here", scene.server.address, "--expect", "a;b;c").code == 0
    ran = orbitmq("cluster", "restart", *QUICK, "--restart-command", "true")
    assert ran.code == 1
    assert "broker c is expected and missing" in ran.err
    assert not scene.wiped


def test_without_a_command_a_person_is_told(orbitmq: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    told = cluster_restart.note

    def obeys(text: str) -> None:
        told(text)
        for name, address in scene.addresses.items():
            if text.startswith(f"restart {name} ({address}) now"):
                (scene.directory / name).touch()

    monkeypatch.setattr(cluster_restart, "note", obeys)
    assert restart(orbitmq, scene).code == 0
    assert {path.name for path in scene.directory.iterdir()} >= {"a", "b"}


def test_what_is_no_such_thing_is_refused_before_anything_is_touched(orbitmq: Run, scene: Scene) -> None:
    at = ("-n", scene.server.address)
    assert orbitmq("cluster", "restart", *at, "--yes").code == 2, "not one by one"
    assert restart(orbitmq, scene, "--cluster", "Other").code == 5
    assert restart(orbitmq, scene, "--wait", "long").code == 2
    early = restart(orbitmq, scene, "--wait", "30s", "--route-interval", "30s", "--although-sending")
    assert (early.code, "--wait 30s is over before every client has looked" in " ".join(early.err.split())) == (2, True)
    assert restart(orbitmq, scene, "--restart-command", "x" * 5_000).code == 2
    scene.clusters = {"Main": ["a"], "Second": ["b"]}
    both = restart(orbitmq, scene, "--restart-command", "true")
    assert (both.code, "the clusters Main, Second (say --cluster)" in both.err) == (2, True)
    scene.clusters = {}
    assert restart(orbitmq, scene).code == 5
    assert scene.asked(RequestCode.WIPE_WRITE_PERM_OF_BROKER) == []


def test_placeholders_are_filled_in_and_other_braces_stay() -> None:
    member = ClusterMember("broker-a", "[::1]:10911")
    assert command_for("ssh {host} x@{broker} {address} ${HOME}", member) == "ssh ::1 x@broker-a [::1]:10911 ${HOME}"


@pytest.mark.parametrize("name", ["a; rm -rf /", "$(id)", "-oProxyCommand=x", "a b", "", "a`b`"])
def test_a_name_that_a_shell_would_read_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="characters that a shell does not take"):
        command_for("restart {broker}", ClusterMember(name, "10.0.0.1:10911"))
    assert command_for("restart {host}", ClusterMember(name, "10.0.0.1:10911")) == "restart 10.0.0.1"


def test_copies_that_lack_something_are_told() -> None:
    slave = {"state": "behind", "main_address": "10.0.0.7:10911", "slave": "1"}
    assert troubles_of({"trouble": "damaged", "slaves": [slave, {**slave, "state": "counted"}]}) == [
        "damaged",
        "slave 10.0.0.7:10911 is behind",
    ]
    assert troubles_of({"trouble": "", "connected": False}) == ["it does not follow its master"]
    assert troubles_of({"connected": None, "slaves": [{**slave, "state": "in sync"}]}) == []


def test_who_sent_last_is_told() -> None:
    named = [{"address": f"10.0.0.7:{port}", "agoMillis": 100 * port} for port in range(1, 17)]
    facts = {"orbitmqSendersOfLastMinute": "40", "orbitmqLastSenders": json.dumps(named)}
    assert senders_of(facts).startswith("40 connections sent in the last minute, last 10.0.0.7:1 0.1 s ago, 10.0.0.7:2")
