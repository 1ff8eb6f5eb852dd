"""Runs the text scripts in `nameserver/`: how the routes of a name server change over time.

A script is a list of steps: a command line, `----`, and what the name server then shows, up to an empty line. Lines
that begin with `#` are comments. With ORBITMQ_REWRITE=1 the scripts are rewritten with what is shown now; read the
difference before committing it.

    register GROUP ID ADDRESS [over=CONNECTION] [cluster=C] [timeout=MS] [acting=true|false] [version=N] [state=N]
             [zone=Z] [TOPIC:QUEUES[:PERM] ...]          every registration also carries the topic named like its group
    unregister GROUP ID ADDRESS       heartbeat GROUP ID ADDRESS       query GROUP ID ADDRESS VERSION
    close CONNECTION                  advance MS                       set KEY=VALUE
    route TOPIC [zone=Z]              topics | clusters                wipe GROUP | restore GROUP | delete TOPIC
    put NAMESPACE KEY VALUE
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.script.text_scripts import play

from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.protocol.remoting.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigWrapper
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request

SCRIPTS = sorted((Path(__file__).parent / "nameserver").glob("*.txt"))


class ScriptPeer:
    def __init__(self, name: str) -> None:
        self.name = name
        self.attachments: dict[str, object] = {}
        self.address = (name, 0)
        self.sent: list[Command] = []
        self.closed = False

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def close(self, reason: str) -> None:
        self.closed = True


class Script:
    """One name server and the commands of the scripts."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.deadlines = Deadlines()
        self.shown: list[str] = []
        self.peers: dict[str, ScriptPeer] = {}
        self.server = NameServer(
            NameServerConfig(notify_min_broker_id_changed=True),
            self.clock,
            self.deadlines,
            notify=self.told,
        )

    def told(self, address: str, command: Command) -> None:
        self.shown.append(f"told {address}: " + " ".join(f"{k}={v}" for k, v in sorted(command.fields.items())))

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"", over: str = "default") -> Command:
        peer = self.peers.get(over)
        if peer is None or peer.closed:
            peer = self.peers[over] = ScriptPeer(over)
        answer = self.server.handle(request(code, fields, body), peer)  # type: ignore[arg-type]
        if answer is None:
            self.server.end_turn()
            answer = peer.sent.pop()
        if answer.code != ResponseCode.SUCCESS:
            self.shown.append(f"{ResponseCode(answer.code).name}: {answer.remark}")
        return answer

    def run(self, line: str) -> list[str]:
        name, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        self.shown = []
        getattr(self, f"do_{name}")([word for word in words if "=" not in word], options)
        return self.shown

    def do_register(self, words: list[str], options: dict[str, str]) -> None:
        group, number, address, *topics = words
        table = {group: TopicConfig(group, 1, 1, 7)}
        for topic in topics:
            name, queues, *perm = topic.split(":")
            table[name] = TopicConfig(name, int(queues), int(queues), int(perm[0]) if perm else 6)
        version = DataVersion(int(options.get("version", "1")), int(options.get("state", "0")), 1)
        fields = self.who(group, number, address, options) | {"haServerAddr": address + "-ha"}
        for option, field in (
            ("timeout", "heartbeatTimeoutMillis"),
            ("acting", "enableActingMaster"),
            ("zone", "__ZONE_NAME"),
        ):
            if option in options:
                fields[field] = options[option]
        body = RegisterBrokerBody(TopicConfigWrapper(table, version)).encode()
        answer = self.ask(RequestCode.REGISTER_BROKER, fields, body, options.get("over", "default"))
        self.shown += [f"{field}={value}" for field, value in sorted(answer.fields.items())]

    def do_unregister(self, words: list[str], options: dict[str, str]) -> None:
        self.ask(RequestCode.UNREGISTER_BROKER, self.who(*words, options))

    def do_heartbeat(self, words: list[str], options: dict[str, str]) -> None:
        self.ask(RequestCode.BROKER_HEARTBEAT, self.who(*words, options))

    def do_query(self, words: list[str], options: dict[str, str]) -> None:
        body = DataVersion(int(words.pop()), 0, 1).encode()
        answer = self.ask(RequestCode.QUERY_DATA_VERSION, self.who(*words, options), body)
        self.shown.append(f"changed={answer.text('changed')}")

    def do_close(self, words: list[str], options: dict[str, str]) -> None:
        peer = self.peers[words[0]]
        peer.closed = True
        self.server.peer_closed(peer)  # type: ignore[arg-type]

    def do_advance(self, words: list[str], options: dict[str, str]) -> None:
        self.clock.advance(int(words[0]))
        self.deadlines.run_due(self.clock.monotonic_ns())
        for peer in self.peers.values():
            if peer.closed and peer.attachments:
                self.server.peer_closed(peer)  # type: ignore[arg-type]
                peer.attachments.clear()
                self.shown.append(f"connection {peer.name} closed")

    def do_set(self, words: list[str], options: dict[str, str]) -> None:
        for key, value in options.items():
            self.ask(RequestCode.UPDATE_NAMESRV_CONFIG, {}, f"{key}={value}".encode())

    def do_put(self, words: list[str], options: dict[str, str]) -> None:
        self.ask(RequestCode.PUT_KV_CONFIG, dict(zip(("namespace", "key", "value"), words, strict=True)))

    def do_wipe(self, words: list[str], options: dict[str, str]) -> None:
        answer = self.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": words[0]})
        self.shown.append(f"{answer.text('wipeTopicCount')} topics")

    def do_restore(self, words: list[str], options: dict[str, str]) -> None:
        answer = self.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": words[0]})
        self.shown.append(f"{answer.text('addTopicCount')} topics")

    def do_delete(self, words: list[str], options: dict[str, str]) -> None:
        self.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": words[0]})

    def do_topics(self, words: list[str], options: dict[str, str]) -> None:
        body = self.document(self.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}))
        self.shown.append(" ".join(sorted(body["topicList"])) or "none")

    def do_clusters(self, words: list[str], options: dict[str, str]) -> None:
        body = self.document(self.ask(RequestCode.GET_BROKER_CLUSTER_INFO, {}))
        for cluster, groups in sorted(body["clusterAddrTable"].items()):
            for group in sorted(groups):
                self.shown.append(f"{cluster} {group} {self.addresses(body['brokerAddrTable'][group])}")
        if not self.shown:
            self.shown.append("none")

    def do_route(self, words: list[str], options: dict[str, str]) -> None:
        fields = {"topic": words[0]}
        if "zone" in options:
            fields |= {"__ZONE_MODE": "true", "__ZONE_NAME": options["zone"]}
        answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        if answer.code != ResponseCode.SUCCESS:
            return
        body = self.document(answer)
        queues = {item["brokerName"]: item for item in body["queueDatas"]}
        for group in sorted(body["brokerDatas"], key=lambda item: str(item["brokerName"])):
            item = queues[group["brokerName"]]
            shape = f"queues {item['readQueueNums']} perm {item['perm']}"
            self.shown.append(f"{group['brokerName']} {self.addresses(group)} {shape}")
        if "orderTopicConf" in body:
            self.shown.append(f"ordered {body['orderTopicConf']}")

    @staticmethod
    def document(answer: Command) -> Any:
        return json.loads(bytes(answer.body))

    @staticmethod
    def addresses(group: Any) -> str:
        return " ".join(f"{number}={address}" for number, address in sorted(group["brokerAddrs"].items()))

    @staticmethod
    def who(group: str, number: str, address: str, options: dict[str, str]) -> dict[str, str]:
        cluster = options.get("cluster", "C")
        return {"brokerName": group, "brokerId": number, "brokerAddr": address, "clusterName": cluster}


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_script(path: Path) -> None:
    play(path, Script().run)


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 5
