"""What a member of a group tells of it beyond RocketMQ's form: entries of its runtime information (request 28), `orbitmqReplica...`.

    as at a pair (`replica_facts`): Role (LEADER, FOLLOWER, STOPPED), LogEnd, ConfirmedEnd, Trouble, DamagedPlaces, MendedBytes; of a leader
    Port, Slaves, CopiesNeeded, CopiesCounted; of a follower Master, Connected
    orbitmqReplicaMember      name of this member
    orbitmqReplicaLeader      name of the leader, as far as this member knows
    orbitmqReplicaEpoch       the epoch that it is in
    orbitmqReplicaInSync      names of the in-sync set, joined by `,`
    orbitmqReplicaLearners    of those that are sent the log and not waited for
    orbitmqReplicaMembers     JSON: name -> main port of those that are present
    orbitmqReplicaElections   times that this member became leader since its start
    orbitmqReplicaEngine      why the engine gives no answer; empty where it does
    orbitmqReplicaClockOff    by how many ms the clock of a follower is off from its leader's, where that has lasted; 0 where it is right
    orbitmqReplicaFarMark     mark of the storage that the members share for the far tier; empty where they share none
    orbitmqReplicaFarWaits    why they share none although timerFarUrl names it

Rules of this file
1. Everything is reckoned when somebody asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from orbitmq.protocol.remoting.bodies import HaClientRuntime, HaConnectionRuntime, HaRuntimeInfo
from orbitmq.replication.replica_steps import ReplicaRole
from orbitmq.server.connections.addresses import endpoint
from orbitmq.server.replication.replica_facts import PREFIX, ReplicaSlave

if TYPE_CHECKING:
    from orbitmq.replication.replica import Replica
    from orbitmq.server.replication.group.broker_member import BrokerMember

IN_SYNC, LEARNER = "in sync", "learner"


def role_of(member: BrokerMember) -> str:
    if member.driver is not None and member.driver.stopped:
        return "STOPPED"
    return "LEADER" if member.duties.leads else "FOLLOWER"


def trouble_of(member: BrokerMember) -> str:
    """Why this member does not do its part, or what it lacks; empty where all is well."""
    driver = member.driver
    if driver is None or driver.stopped:
        return member.outside
    off_ms = driver.clock_report.off_ms
    clock = f"its clock is {off_ms} ms off from the leader's" if off_ms else ""
    parts = (_trouble_in_role(member, driver.replica), clock, member.unkept, member.mending.damage.text)
    return "; ".join(filter(None, parts))


def _trouble_in_role(member: BrokerMember, replica: Replica) -> str:
    if member.removed:
        return member.removed
    if replica.role is ReplicaRole.LEADING:
        refused = f"sends are refused: {replica.refusal}" if replica.refusal else ""
        return "; ".join(filter(None, (refused, member.calls.trouble)))
    if member.driver is not None and member.driver.append_trouble:
        return f"what the leader sends is not in its log: {member.driver.append_trouble}"
    if replica.following.is_matched:
        return ""
    if not member.calls.trouble:
        return f"the leader {replica.leader} is not followed" if replica.leader else "nobody leads the group"
    return f"no leader is followed, and the engine gives no answer: {member.calls.trouble}"


def followers_of(member: BrokerMember) -> list[ReplicaSlave]:
    """Of a leader: all other members, in the order of their names."""
    driver = member.driver
    if driver is None or not member.is_leading or driver.replica.view is None:
        return []
    view, now_ns = driver.replica.view, member.process.clock.monotonic_ns()
    told = []
    for name in sorted(view.members):
        if name == member.own.name:
            continue
        end = driver.replica.counting.end_of(name)
        behind = driver.member.lag(end, now_ns)
        place = member.places.get(name)
        state = IN_SYNC if name in view.in_sync else LEARNER
        why_not = "" if state == IN_SYNC else "it does not follow" if end is None else "it has not caught up yet"
        if driver.member.has_clock_off(name):
            why_not = "; ".join(filter(None, (why_not, "its clock is off from the leader's")))
        told.append(
            ReplicaSlave(
                str(member.member_id(name)),
                member.source.address_of(name),
                end or 0,
                behind.bytes,
                behind.ms,
                state,
                why_not,
                "" if place is None else place.address,
            )
        )
    return told


def status_of(member: BrokerMember) -> HaRuntimeInfo:
    end = member.store.log.written_end
    if not member.duties.leads:
        leader = "" if member.driver is None else member.driver.replica.leader
        client = HaClientRuntime(master_addr=member.source.address_of(leader) or None, max_offset=end)
        return HaRuntimeInfo(master=False, master_commit_log_max_offset=end, ha_client_runtime_info=client)
    followers = [
        HaConnectionRuntime(
            addr=one.address,
            slave_ack_offset=one.position,
            diff=one.behind_bytes,
            in_sync=one.state == IN_SYNC,
            why_not=one.why_not,
        )
        for one in followers_of(member)
    ]
    return HaRuntimeInfo(
        master=True,
        master_commit_log_max_offset=end,
        in_sync_slave_nums=sum(one.in_sync for one in followers),
        ha_connection_info=followers,
    )


def facts_of(member: BrokerMember) -> dict[str, str]:
    store, driver, damage = member.store, member.driver, member.mending.damage
    replica = None if driver is None else driver.replica
    view = None if replica is None else replica.view
    told = {
        "Role": role_of(member),
        "LogEnd": str(store.log.written_end),
        "ConfirmedEnd": str(store.confirm_offset),
        "Trouble": trouble_of(member),
        "DamagedPlaces": str(len(damage.places)),
        "MendedBytes": str(damage.mended_bytes),
        "Member": member.own.name,
        "Leader": "" if replica is None else replica.leader,
        "Epoch": "0" if replica is None else str(replica.epoch),
        "InSync": "" if view is None else ",".join(view.in_sync),
        "Learners": "" if view is None else ",".join(view.learners),
        "Members": msgspec.json.encode({name: one.address for name, one in sorted(member.places.items())}).decode(),
        "Elections": "0" if driver is None else str(driver.elections),
        "Engine": member.calls.trouble,
        "ClockOff": "0" if driver is None else str(driver.clock_report.off_ms),
        "FarMark": member.far.mark,
        "FarWaits": member.naming.waits_for,
    }
    if member.duties.leads and view is not None:
        followers = followers_of(member)
        told["Port"] = "" if member.port.address is None else endpoint(*member.port.address)
        told["CopiesNeeded"] = str(len(view.in_sync) - 1)
        told["CopiesCounted"] = str(sum(one.state == IN_SYNC for one in followers))
        told["Slaves"] = msgspec.json.encode(followers).decode()
    elif replica is not None:
        told["Master"] = member.source.address_of(replica.leader)
        told["Connected"] = str(replica.following.is_matched).lower()
    return {f"{PREFIX}{name}": text for name, text in told.items()}
