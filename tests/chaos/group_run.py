"""A replicated group while one process, link or engine after the other fails: `GroupRun(directory, seed).run(...)`.

Rules of this file
1. Members reach each other, clients and the engine through networks of their own. What fails and when follows from the seed.
2. After each disaster sends go on within `GO_ON_LIMIT_S`; where enough members are left, before anything comes back.
3. After each disaster, and at the end on every member: every acknowledged send once, and what was confirmed is what it was.
4. In no epoch two processes are seen leading, of one member neither. Logs are equal byte for byte up to the shorter end.
5. What other programs were promised and got stands in a ledger, which is judged at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from tests.chaos.faulty_run import HEALED_LIMIT_S, QUEUES, FaultyRun, came_true
from tests.chaos.group_places import NetworkedGroup
from tests.chaos.pair_programs import DUE_S, TICKS, TIMERS, Programs, now_ms
from tests.system.group_processes import IdempotentSender, answer_of, bodies_at
from tests.system.server_process import ClosedByServer
from tests.worlds.ordered_traffic import OrderedTraffic

from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.replication_bodies import DemoteRequest

TOPIC: Final = "orders"
LANES: Final = "lanes"
SENDERS: Final = 2
GO_ON_LIMIT_S: Final = 30.0
"""Four seconds of silence, as many until a sender gives up on a member that says nothing, and a loaded machine."""
GO_ON_COUNT: Final = 5 * SENDERS
READ_LIMIT_S: Final = 6.0
"""Until a leader shows what was acknowledged."""
REPLACED_S: Final = 8.0
"""How long a leader that others miss is left so, unless another one leads before."""
PAUSE_S: Final = 0.04
SHORT_S: Final = (0.05, 3.0)
LOOK_EACH_S: Final = 0.3
LEVEL_AFTER: Final = 0.7
"""Of all disasters; others follow while somebody is still on the way back."""
CALM_S: Final = 3.0
"""A disaster that comes sooner after the end of another one counts with it: where a group has read up to was perhaps told to a leader that
did not know yet that it leads no more."""
CALM: Final = 0.3
"""Of all disasters with all members in sync after them: so long nothing happens."""
LEADER_LAST: Final = 0.5
"""Of all times when all are down: others lead before the former leader is back."""
LEADER_FIRST: Final = 0.3
"""Of them: it is there first, and finds itself as the leader."""
RESTARTED: Final = 0.3
"""Of all members that are frozen or cut off: they are killed and started before that is over."""


class Disaster(Enum):
    KILL_LEADER = "leader killed"
    KILL_FOLLOWER = "follower killed"
    KILL_TWO = "two killed"
    KILL_ALL = "all killed"
    FREEZE_LEADER = "leader frozen for a moment"
    FREEZE_LEADER_LONG = "leader frozen until another one leads"
    FREEZE_FOLLOWER = "follower frozen for a moment"
    FREEZE_FOLLOWER_LONG = "follower frozen until it is dropped"
    STOP_LEADER = "leader ended in order"
    STOP_FOLLOWER = "follower ended in order"
    SWITCH = "planned switch"
    KILL_ENGINE = "engine killed"
    KILL_ENGINE_AND_LEADER = "engine and leader killed"
    CUT_LEADER = "leader cut off from the others"
    CUT_FOLLOWER = "follower cut off from the others"
    DEAF_LEADER = "leader hears nobody"
    MUTE_LEADER = "leader is heard by nobody"
    DEAF_FOLLOWER = "follower hears nobody"
    MUTE_FOLLOWER = "follower is heard by nobody"
    LONELY_LEADER = "leader cut off from the others and the engine"
    LONELY_FOLLOWER = "follower cut off from the others and the engine"
    ALONE_AFTER_ALL = "follower dropped, then the others killed, and it alone back for a while"
    POWER_LEADER = "power of the leader cut"
    POWER_FOLLOWER = "power of a follower cut"
    POWER_ALL = "power of all cut"
    POWER_ENGINE_AND_LEADER = "engine killed, power of the leader cut"
    POWER_LEADER_ALONE = "followers frozen, power of the leader cut, and it alone back for a while"


OF_LEADER: Final = frozenset(one for one in Disaster if one.name.endswith(("_LEADER", "_LEADER_LONG")))
POWER: Final = frozenset(one for one in Disaster if one.name.startswith("POWER_"))
ALONE: Final = frozenset({Disaster.ALONE_AFTER_ALL, Disaster.POWER_LEADER_ALONE})
ENGINE: Final = frozenset({Disaster.KILL_ENGINE, Disaster.KILL_ENGINE_AND_LEADER, Disaster.POWER_ENGINE_AND_LEADER})
OF_ALL: Final = frozenset({Disaster.KILL_ALL, Disaster.POWER_ALL})
KILLS: Final = (frozenset({Disaster.KILL_LEADER, Disaster.KILL_FOLLOWER, Disaster.KILL_TWO}) | OF_ALL | POWER) - (
    ENGINE | ALONE
)
SHORT: Final = frozenset({Disaster.FREEZE_LEADER, Disaster.FREEZE_FOLLOWER})
FREEZES: Final = SHORT | {Disaster.FREEZE_LEADER_LONG, Disaster.FREEZE_FOLLOWER_LONG}
STOPS: Final = frozenset({Disaster.STOP_LEADER, Disaster.STOP_FOLLOWER})
LONELY: Final = frozenset({Disaster.LONELY_LEADER, Disaster.LONELY_FOLLOWER})
DEAF: Final = (
    frozenset({Disaster.DEAF_LEADER, Disaster.DEAF_FOLLOWER, Disaster.CUT_LEADER, Disaster.CUT_FOLLOWER}) | LONELY
)
MUTE: Final = (
    frozenset({Disaster.MUTE_LEADER, Disaster.MUTE_FOLLOWER, Disaster.CUT_LEADER, Disaster.CUT_FOLLOWER}) | LONELY
)


class Account(NamedTuple):
    """Of one disaster."""

    disaster: Disaster
    unavailable_s: float
    lost: int
    repeated: int


class GroupRun(FaultyRun[Disaster]):
    """`ack`: replicationAck; drawn where it is None. reads_in_order: others send and read in order meanwhile."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        bug: str | None = None,
        *,
        members: int = 3,
        ack: str | None = None,
        reads_in_order: bool = False,
    ) -> None:
        super().__init__(seed, bug)
        self._reads_in_order = reads_in_order
        self._directory = directory
        self._names = "abcde"[:members]
        drawn = self._chance.choice(("disk", "memory"))
        self._ack = ack or drawn
        self._senders: list[IdempotentSender] = []
        self._confirmed: list[bytes] = []
        """What the group holds of the plain sends, in their order."""
        self._is_level = True
        self._healed_ms = 0.0
        self._leaders: defaultdict[str, set[str]] = defaultdict(set)
        """By epoch: which processes of which members were seen leading."""
        self.accounts: list[Account] = []
        self.codes: Counter[int] = Counter()

    # --- the run --------------------------------------------------------------------------------------------------

    async def run(self, disasters: Sequence[Disaster]) -> None:
        """Until the first finding."""
        loop = asyncio.get_running_loop()
        recorded = None if POWER.isdisjoint(disasters) else self.seed
        try:
            self._group = group = await asyncio.to_thread(
                NetworkedGroup, self._directory, self._names, loop, self._bug, recorded, replicationAck=self._ack
            )
        except AssertionError as error:
            self.findings.append(str(error))
            return
        name_server = f"127.0.0.1:{group.names.name_port}"
        self._programs = Programs(name_server, self.ledger, self.seed, TOPIC)
        in_order = OrderedTraffic(name_server, LANES, QUEUES)
        looks = asyncio.create_task(self._look_always())
        try:
            for topic in (TOPIC, TIMERS, TICKS, LANES):
                await asyncio.to_thread(group.members[group.leader()].create_topic, topic, QUEUES)
            self._senders = [IdempotentSender(group, f"{self.seed}-{number}", PAUSE_S) for number in range(SENDERS)]
            await self._programs.begin()
            if self._reads_in_order:
                await in_order.begin(HEALED_LIMIT_S)
            for disaster in disasters:
                if not self.findings:
                    await self._play(disaster)
            if not self.findings and self._reads_in_order:
                self.findings += await in_order.finish(HEALED_LIMIT_S)
            if not self.findings:
                await self._settle()
        except AssertionError as error:  # of a process that did not do what it was told
            self.findings.append(str(error))
        finally:
            looks.cancel()
            await self._programs.close()
            await in_order.close()
            for sender in self._senders:
                await asyncio.to_thread(sender.end)
                self.codes += sender.codes
            processes = list(group.members.values())
            await asyncio.to_thread(group.end)
            for process in processes:
                self._judge_log(process)

    def drawn(self, count: int, names: Collection[str] | None = None) -> list[Disaster]:
        """Each once before any twice; only those with these names."""
        possible = [
            one
            for one in Disaster
            if (one is not Disaster.KILL_TWO or len(self._names) > 2)
            and (one is not Disaster.POWER_ALL or self._ack == "disk")
        ]
        return self._each_once([one for one in possible if names is None or one.name in names], count)

    async def _play(self, disaster: Disaster) -> None:
        self.faults[disaster] += 1
        await asyncio.sleep(self._chance.uniform(0.1, 0.8))
        await self._until(lambda: bool(self._group.leader()), f"leader before {disaster.value}")
        if disaster in POWER and self._ack == "memory":  # whoever is alone in the set would have nothing left
            await self._until(self._all_in_sync, f"all members in sync before {disaster.value}")
        leader = await asyncio.to_thread(self._group.leader)
        if not leader:
            return
        for sender in self._senders:
            sender.longest_s = 0.0
        if now_ms() > self._healed_ms + CALM_S * 1_000:
            self.ledger.faults_ms.append(now_ms())
        await self._fail(disaster, leader)
        self._healed_ms = now_ms()
        await self._go_on(disaster.value)
        unavailable_s = max(sender.longest_s for sender in self._senders)
        lost, repeated = await self._read_on(disaster.value)
        self.accounts.append(Account(disaster, unavailable_s, lost, repeated))
        self._is_level = self._chance.random() < LEVEL_AFTER
        if self._is_level and not self.findings:
            await self._until(self._all_in_sync, f"all members in sync after {disaster.value}")
            await asyncio.sleep(CALM_S * (self._chance.random() < CALM))

    async def _fail(self, disaster: Disaster, leader: str) -> None:
        group = self._group
        victims = self._victims(disaster, leader)
        ends = group.cut_power if disaster in POWER else group.kill
        if disaster in KILLS:
            for name in victims:
                await asyncio.to_thread(ends, name)
            await self._meanwhile(disaster, leader)
            await self._start_first(disaster, leader)
            await self._start([name for name in victims if name not in group.members])
        elif disaster is Disaster.ALONE_AFTER_ALL:
            await self._leave_alone(victims[0])
        elif disaster is Disaster.POWER_LEADER_ALONE:
            await self._bring_back_alone(leader)
        elif disaster in FREEZES:
            for name in victims:
                group.signal(name, signal.SIGSTOP)
            await self._meanwhile(disaster, leader)
            await self._restart_some(victims)
            for name in victims:
                group.signal(name, signal.SIGCONT)
        elif disaster in STOPS:
            for name in victims:
                await asyncio.to_thread(group.stop, name)
            await self._meanwhile(disaster, leader)
            await self._start(victims)
        elif disaster is Disaster.SWITCH:
            with contextlib.suppress(OSError, ClosedByServer):
                request = DemoteRequest(hands_over=True).encode()
                await asyncio.to_thread(answer_of, group.members[leader], RequestCode.DEMOTE_MASTER, request)
        elif disaster in ENGINE:
            engine = group.engine.members[0]
            engine.kill()
            for name in victims:
                await asyncio.to_thread(ends, name)
            await self._meanwhile(disaster, leader)
            await self._start(victims)
            await asyncio.to_thread(group.engine.start, [engine])
        else:
            for name in victims:
                self._cut_off(name, disaster)
            await self._meanwhile(disaster, leader)
            await self._restart_some(victims)
            group.let_go()

    async def _start_first(self, disaster: Disaster, leader: str) -> None:
        """Of all who are down."""
        drawn = self._chance.random() if disaster in OF_ALL else 1.0
        if drawn < LEADER_LAST:
            await self._start([name for name in self._names if name != leader])
            await came_true(lambda: bool(self._group.leader()), 2 * REPLACED_S)
        elif drawn < LEADER_LAST + LEADER_FIRST:
            await self._start([leader])

    def _victims(self, disaster: Disaster, leader: str) -> list[str]:
        if disaster in OF_LEADER:
            return [leader]
        if disaster in (Disaster.SWITCH, Disaster.KILL_ENGINE):
            return []
        count = len(self._names) if disaster in OF_ALL else 2 * (disaster is Disaster.KILL_TWO)
        others = [name for name in self._names if name != leader]
        return self._chance.sample(self._names, count) if count else [self._chance.choice(others)]

    def _cut_off(self, victim: str, disaster: Disaster) -> None:
        for other in self._names:
            if other != victim and disaster in DEAF:
                self._group.hold(other, victim)
            if other != victim and disaster in MUTE:
                self._group.hold(victim, other)
        if disaster in LONELY:
            self._group.hold_engine(victim)

    async def _meanwhile(self, disaster: Disaster, leader: str) -> None:
        """Sends go on without those who are away, where enough members are left and nobody was away before."""
        is_short = disaster in SHORT or (disaster in KILLS and self._chance.random() < 0.5)
        are_enough = disaster not in OF_ALL | (ENGINE & OF_LEADER) and (
            disaster is not Disaster.KILL_TWO or len(self._names) > 3
        )
        if self._is_level and are_enough and not is_short:
            await self._go_on(f"{disaster.value}, which it still is")
            if disaster in OF_LEADER:
                await came_true(lambda: bool(self._group.leader(but=leader)), REPLACED_S)
        else:
            await asyncio.sleep(self._chance.uniform(*SHORT_S))

    async def _bring_back_alone(self, leader: str) -> None:
        """The others have what it had sent and did not sync, and meet it when it has written something else."""
        group = self._group
        others = [name for name in self._names if name != leader]
        for name in others:
            group.signal(name, signal.SIGSTOP)
        await asyncio.to_thread(group.cut_power, leader)
        await self._start([leader])
        await asyncio.sleep(self._chance.uniform(1.0, REPLACED_S))
        for name in others:
            group.signal(name, signal.SIGCONT)

    async def _leave_alone(self, victim: str) -> None:
        """It lacks what was acknowledged without it, and leads nobody until one of the others is back."""
        group = self._group
        group.signal(victim, signal.SIGSTOP)
        await self._go_on(f"{Disaster.ALONE_AFTER_ALL.value}, which is frozen")
        others = [name for name in self._names if name != victim]
        for name in others:
            await asyncio.to_thread(group.kill, name)
        group.signal(victim, signal.SIGCONT)
        await came_true(lambda: group.leader() == victim, self._chance.uniform(1.0, REPLACED_S))
        await self._start(others)

    async def _restart_some(self, victims: Sequence[str]) -> None:
        for name in victims:
            if self._chance.random() < RESTARTED:
                await asyncio.to_thread(self._group.kill, name)
                await self._start([name])

    async def _start(self, names: Sequence[str]) -> None:
        for name in names:
            await asyncio.to_thread(self._group.start, name, awaited=False)
        for name in names:
            await asyncio.to_thread(self._group.members[name].await_line)

    # --- judging --------------------------------------------------------------------------------------------------

    def _acknowledged(self) -> set[bytes]:
        return {body for sender in self._senders for body in list(sender.acknowledged)}

    async def _go_on(self, after: str) -> None:
        count = len(self._acknowledged())
        await self._until(
            lambda: len(self._acknowledged()) >= count + GO_ON_COUNT, f"sends that go on after {after}", GO_ON_LIMIT_S
        )

    def _all_in_sync(self) -> bool:
        return self._group.in_sync(*self._names)

    async def _read_on(self, after: str) -> tuple[int, int]:
        """What the leader has beyond what was read before: how many acknowledged sends are not there, and how many there more than once."""
        acknowledged = self._acknowledged()

        def are_there() -> bool:
            with contextlib.suppress(KeyError, OSError, ClosedByServer):
                port = self._group.members[self._group.leader()].port
                self._confirmed += bodies_at(port, TOPIC, len(self._confirmed))
            return acknowledged <= set(self._confirmed)

        await came_true(are_there, READ_LIMIT_S)
        lost = acknowledged - set(self._confirmed)
        repeated = [body for body, count in Counter(self._confirmed).items() if count > 1]
        if lost:
            self.findings.append(f"{len(lost)} acknowledged sends are lost after {after}, such as {min(lost)!r}")
        if repeated:
            self.findings.append(f"{len(repeated)} sends are stored twice after {after}, such as {repeated[0]!r}")
        return len(lost), len(repeated)

    async def _look_always(self) -> None:
        while True:
            for name in self._names:
                process = self._process_of(name)
                told = await asyncio.to_thread(self._group.told, name, 1.0)
                if told.get("Role") == "LEADER" and process and process == self._process_of(name):
                    leaders = self._leaders[told["Epoch"]]
                    if process not in leaders and leaders:
                        self.findings.append(f"{process} and {', '.join(leaders)} lead in epoch {told['Epoch']}")
                    leaders.add(process)
            await asyncio.sleep(LOOK_EACH_S)

    def _process_of(self, name: str) -> str:
        """That runs as this member; empty while none does."""
        member = self._group.members.get(name)
        return "" if member is None else f"{name} in process {member.pid}"

    async def _settle(self) -> None:
        """Nobody sends any more; what waits has its time. Then the members are compared, stopped, and their logs as well."""
        group = self._group
        for sender in self._senders:
            await asyncio.to_thread(sender.end)
        await self._programs.finish(DUE_S[1] + HEALED_LIMIT_S)
        read = self.ledger.received[f"{TOPIC}-readers"]
        await self._until(lambda: self._acknowledged() <= read.keys(), "delivery of all acknowledged sends")
        await self._until(self._all_in_sync, "all members in sync in the end")
        leader = await asyncio.to_thread(group.until_level, *self._names)
        await self._read_on("the end")
        whole = await asyncio.to_thread(group.bodies, leader)
        if whole[: len(self._confirmed)] != self._confirmed:
            self.findings.append("what was confirmed and read is not what the leader has in the end")
        for name in self._names:
            if await asyncio.to_thread(group.bodies, name) != whole:
                self.findings.append(f"{name} has other messages than {leader}")
        await asyncio.to_thread(self._judge_ledger, group.members[leader].port)
        await asyncio.to_thread(self._compare_logs)

    def _compare_logs(self) -> None:
        """After an orderly end of all."""
        for process in self._group.members.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self._group.members.items():
            if code := process.exit_code():
                self.findings.append(f"an orderly end of {name} with exit code {code}")
        logs = [log.rstrip(b"\0") for log in self._group.logs(*self._names)]
        end = min(map(len, logs))
        if len({log[:end] for log in logs}) > 1:
            self.findings.append(f"the logs differ, in {[len(log) for log in logs]} bytes")

    def summary(self) -> str:
        by_disaster: defaultdict[Disaster, list[Account]] = defaultdict(list)
        for account in self.accounts:
            by_disaster[account.disaster].append(account)
        lines = (
            f"\n  {disaster.value} x {len(of)}: unavailable for {', '.join(f'{one.unavailable_s:.1f}' for one in of)} s, "
            f"lost {sum(one.lost for one in of)}, repeated {sum(one.repeated for one in of)}"
            for disaster, of in by_disaster.items()
        )
        told = ", ".join(
            f"{count} x {ResponseCode(code).name if code >= 0 else 'nothing'}" for code, count in self.codes.items()
        )
        return (
            f"seed {self.seed}, {len(self._names)} members, replicationAck={self._ack}: {self.faults.total()} disasters, "
            f"{len(self._leaders)} epochs; sends answered {told}; {self.ledger.summary()}{''.join(lines)}\n "
        )
