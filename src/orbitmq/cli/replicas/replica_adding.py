"""`orbitmq replica add`: the settings with which a broker becomes a slave of a running master.

Rules of this file
1. Nothing is changed at the master: it admits the first directory that comes with an id. Where it would not, the command says so instead.
2. What both brokers have to have alike is taken from the master; what only an operator knows (ports, directory, credentials) is a note.
"""

from __future__ import annotations

import msgspec

from orbitmq.errors import OrbitError
from orbitmq.protocol.java_properties import format_properties

ALIKE = (
    "messageDelayLevel", "flushDiskType", "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum",
    "maxMessageSize", "fileReservedTime", "timerPrecisionMs", "timerRollWindowSlot",
)  # fmt: skip
"""Keys that a slave should have as its master has them: files of the same size, and what becomes of messages once it leads."""


class NoSlaveWanted(OrbitError):
    """The broker would not take a slave; the remedy says what to do."""


class SlaveSettings(msgspec.Struct, frozen=True):
    settings: dict[str, str]
    notes: list[str]


def slave_settings(
    master: str, facts: dict[str, str], config: dict[str, str], taken: set[int], wanted_id: int | None
) -> SlaveSettings:
    """The settings of a slave of the master at `master`, by its runtime facts and its configuration. `taken` are ids that brokers of its
    name are registered with. Raises NoSlaveWanted."""
    role = facts.get("orbitmqReplicaRole")
    if role is None:
        raise NoSlaveWanted(
            f"the broker at {master} is one of RocketMQ", remedy="see docs/howto/move-a-rocketmq-group.md"
        )
    if "orbitmqReplicaMember" in facts:
        raise NoSlaveWanted(
            f"the broker at {master} is a member of a replicated group",
            remedy="a new member needs the same brokerName and replicationEngine, and a replicaName of its own: see "
            "docs/howto/run-a-replicated-group.md",
        )
    if role == "SLAVE":
        raise NoSlaveWanted(
            f"the broker at {master} is a slave", remedy="name its master; orbitmq replica status tells who that is"
        )
    if not facts.get("orbitmqReplicaPort"):
        raise NoSlaveWanted(
            f"the broker at {master} opens no port for slaves",
            remedy="set haEnable=true there, or haListenPort to a free port, and start it again",
        )
    if why_not := facts.get("orbitmqReplicaRefuses"):
        raise NoSlaveWanted(f"the broker at {master} takes no slave now: {why_not}")
    known = set(msgspec.json.decode(facts.get("orbitmqReplicaKnown") or "[]", type=list[int]))
    used = known | taken
    if wanted_id is not None and wanted_id in used:
        raise NoSlaveWanted(
            f"id {wanted_id} belongs to a slave of that master",
            remedy="name another one; or orbitmq replica remove has the master forget a slave that is gone",
        )
    slave_id = wanted_id or next(number for number in range(1, len(used) + 2) if number not in used)
    settings = {
        "brokerClusterName": config.get("brokerClusterName", "DefaultCluster"),
        "brokerName": config.get("brokerName", ""),
        "brokerId": str(slave_id),
        "brokerRole": "SLAVE",
    }
    names = config.get("namesrvAddr", "")
    host = master.rpartition(":")[0]
    if names:
        settings["namesrvAddr"] = names
    else:
        settings["haMasterAddress"] = f"{host}:{facts['orbitmqReplicaPort'].rpartition(':')[2]}"
    settings |= {key: config[key] for key in ALIKE if config.get(key)}
    return SlaveSettings(settings, _notes(config, bool(names)))


def _notes(config: dict[str, str], has_names: bool) -> list[str]:
    notes = ["give it a data directory of its own, empty, and ports that are free on its machine (listenPort)"]
    if not has_names:
        notes.append(
            "the master names no name server: its main port has to be one below its port for slaves, and clients do not find the slave"
        )
    if config.get("authenticationEnabled", "false") == "true":
        notes.append(
            "the master asks callers who they are: give it innerClientAuthenticationCredentials of a user who may Cluster:Update, "
            "authenticationEnabled=true, and the master's accessKeyFile, without which it gets no users"
        )
    if config.get("tls.server.mode", "permissive") == "enforcing":
        notes.append("the master takes connections over TLS alone: give it a certificate as well")
    return notes


def as_file(found: SlaveSettings) -> str:
    """As a file of settings that `orbitmq broker --config` reads."""
    return format_properties(found.settings.items()).rstrip()
