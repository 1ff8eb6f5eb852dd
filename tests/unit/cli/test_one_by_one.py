"""The order of a restart one by one, told as what was done when: a cluster of values, moved by hand, one look a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orbitmq.cli.restarting.one_by_one import ClusterMember, Doing, OneByOne, Seen, Waits

S = 1_000
WAITS = Waits(routes_ms=30 * S, leave_ms=120 * S, start_ms=60 * S)
A, B = ClusterMember("a", "a:10911"), ClusterMember("b", "b:10911")
SLAVE = ClusterMember("a", "a:10921")


@dataclass
class Broker:
    """One process. The moments are seconds since the beginning."""

    is_master: bool = True
    is_member: bool = False
    started: int | None = 1
    """Which of its processes runs."""
    known: bool = True
    sends: Callable[[int], bool] = lambda now: False
    """Whether somebody sends to it in this second, who does not look at routes."""
    last_send: int | None = None
    restart_takes: int | None = 2
    """Seconds; None: it does not come back."""
    registers_fully: bool = True
    """A registration gives write permission; not where the name server knows its version."""
    behind_for: int = 0
    """Seconds in which it copies after its start."""
    up_at: int | None = None
    well_at: int = 0


@dataclass
class World:
    brokers: dict[ClusterMember, Broker]
    wiped: set[str] = field(default_factory=set)
    now: int = 0
    events: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    command_fails: bool = False
    switches: bool = True

    def second(self) -> dict[str, Seen]:
        """Time goes on by a second; what is seen then."""
        self.now += 1
        for member, broker in self.brokers.items():
            if broker.up_at is not None and self.now >= broker.up_at:
                broker.started, broker.up_at, broker.known, broker.last_send = self.now, None, True, None
                broker.well_at = self.now + broker.behind_for
                if broker.registers_fully:
                    self.wiped.discard(member.name)
            if broker.started is not None and broker.sends(self.now):
                broker.last_send = self.now
        return self.seen()

    def seen(self) -> dict[str, Seen]:
        return {
            member.address: Seen(
                is_master=broker.is_master,
                started_ms=broker.started,
                unknown_at=() if broker.known else ("ns:9876",),
                is_writable=member.name not in self.wiped,
                troubles=("it copies",) if self.now < broker.well_at else (),
                sent_ago_ms=None if broker.last_send is None else (self.now - broker.last_send) * S,
                senders="10.0.0.7:1",
                is_member=broker.is_member,
            )
            for member, broker in self.brokers.items()
        }

    def stop(self, member: ClusterMember) -> None:
        broker = self.brokers[member]
        broker.started, broker.known = None, False
        broker.up_at = None if broker.restart_takes is None else self.now + broker.restart_takes

    def play(self, order: OneByOne, until: int = 1_000, by_hand: bool = False) -> list[str]:
        """What was done, each with its second."""
        while not order.is_over and self.now < until:
            self.do(order, order.step((self.now + 1) * S, self.second()), by_hand)
        return self.events

    def do(self, order: OneByOne, effects: list, by_hand: bool = False) -> None:
        for effect in effects:
            if effect.doing is Doing.SAY:
                self.said.append(effect.text)
                continue
            self.events.append(f"{self.now} {effect.doing.value}: {effect.member}")
            if effect.doing is Doing.WIPE:
                self.wiped.add(effect.member.name)
            elif effect.doing is Doing.GIVE_BACK:
                self.wiped.discard(effect.member.name)
            elif effect.doing is Doing.SWITCH:
                if self.switches:
                    self.brokers[A].is_master, self.brokers[SLAVE].is_master = False, True
            elif not by_hand:
                if not self.command_fails:
                    self.stop(effect.member)
                failure = "it ended with 255" if self.command_fails else ""
                self.do(order, order.restarted(self.now * S, self.seen(), failure))


def order(world: World, **options: object) -> OneByOne:
    return OneByOne(list(world.brokers), WAITS, now_ms=0, **options)  # type: ignore[arg-type]


def test_each_broker_loses_its_permission_first_and_is_restarted_when_routes_are_known_and_nobody_sends() -> None:
    world = World({A: Broker(), B: Broker()})
    assert world.play(order(world)) == [
        "1 take write permission: a (a:10911)",
        "36 restart: a (a:10911)",
        "39 take write permission: b (b:10911)",
        "74 restart: b (b:10911)",
    ]
    assert world.wiped == set(), "their registration gave it back"


def test_who_sends_when_everybody_should_know_is_waited_for_until_a_whole_interval_was_silent() -> None:
    world = World({A: Broker(sends=lambda now: now <= 50), B: Broker()})
    assert "80 restart: a (a:10911)" in world.play(order(world))
    assert "a (a:10911) is still sent to: 10.0.0.7:1" in world.said


def test_who_still_sends_at_the_end_ends_it_and_the_permission_is_given_back() -> None:
    world = World({A: Broker(sends=lambda now: True), B: Broker()})
    plan = order(world)
    events = world.play(plan)
    assert events[0] == "1 take write permission: a (a:10911)"
    assert "61 take write permission: a (a:10911)" in events, "a topic may have been announced since"
    assert events[-1] == "122 give write permission back: a (a:10911)"
    assert not any("restart" in event for event in events)
    assert plan.failure == (
        "a (a:10911) is still sent to after 2m: 10.0.0.7:1; wait longer (--wait), or restart it all the same (--although-sending); "
        "0 restarted, it was the turn of a (a:10911), 1 not touched"
    )
    assert world.wiped == set()


def test_who_still_sends_may_be_passed_over() -> None:
    world = World({A: Broker(sends=lambda now: True), B: Broker()})
    plan = order(world, although_sending=True)
    assert "122 restart: a (a:10911)" in world.play(plan)
    assert (plan.failure, plan.done) == ("", [A, B])


def test_permission_that_a_name_server_gives_back_is_taken_again_and_clients_get_their_time_anew() -> None:
    world = World({A: Broker(), B: Broker()})
    plan = order(world)
    world.play(plan, until=20)
    world.wiped.clear()
    assert world.play(plan, until=60) == [
        "1 take write permission: a (a:10911)",
        "21 take write permission: a (a:10911)",
        "56 restart: a (a:10911)",
        "59 take write permission: b (b:10911)",
    ]


def test_a_slave_comes_before_its_master_and_the_master_when_the_slave_has_what_it_has() -> None:
    """Nobody sends to the master from before its slave goes until it is back itself: one that waits for its slave would answer 11."""
    slave = Broker(is_master=False, behind_for=10, registers_fully=False)
    world = World({A: Broker(behind_for=5), SLAVE: slave, B: Broker()})
    assert world.play(order(world)) == [
        "1 take write permission: a (a:10911)",
        "36 restart: a (a:10921)",
        "48 restart: a (a:10911)",
        "50 take write permission: a (a:10911)",
        "55 give write permission back: a (a:10911)",
        "56 take write permission: b (b:10911)",
        "91 restart: b (b:10911)",
    ]
    assert "waiting until the cluster is well: a (a:10921): it copies" in world.said
    assert "restarting a (a:10921): nobody sends to its master a (a:10911) any more" in world.said


def test_a_slave_that_comes_last_brings_no_permission_and_it_is_given_back() -> None:
    world = World({A: Broker(), SLAVE: Broker(is_master=False, registers_fully=False), B: Broker()})
    assert world.play(order(world, skipped={A.address, B.address})) == [
        "1 take write permission: a (a:10911)",
        "36 restart: a (a:10921)",
        "41 give write permission back: a (a:10921)",
    ]


def test_a_slave_that_does_not_come_back_leaves_a_master_that_is_sent_to() -> None:
    world = World({A: Broker(), SLAVE: Broker(is_master=False, restart_takes=None), B: Broker()})
    plan = order(world)
    assert world.play(plan)[-1] == "97 give write permission back: a (a:10921)"
    assert world.wiped == set()
    assert "add-write" not in plan.failure


def test_the_leader_of_a_group_has_another_lead_and_is_restarted_as_a_follower() -> None:
    group = {A: Broker(is_member=True), SLAVE: Broker(is_master=False, is_member=True)}
    world = World({**group, B: Broker()})
    assert world.play(order(world))[:6] == [
        "1 restart: a (a:10921)",
        "4 take write permission: a (a:10911)",
        "39 have another member lead: a (a:10911)",
        "39 give write permission back: a (a:10911)",
        "40 restart: a (a:10911)",
        "43 take write permission: b (b:10911)",
    ]
    alone = World({A: Broker(is_member=True), SLAVE: Broker(is_master=False, is_member=True)})
    assert alone.play(order(alone, nowhere_else={"a"})) == [
        "1 restart: a (a:10921)",
        "4 have another member lead: a (a:10911)",
        "5 restart: a (a:10911)",
    ]


def test_a_leader_that_nobody_relieves_is_restarted_all_the_same() -> None:
    world = World({A: Broker(is_member=True), SLAVE: Broker(is_master=False, is_member=True)}, switches=False)
    assert world.play(order(world, nowhere_else={"a"})) == [
        "1 restart: a (a:10921)",
        "4 have another member lead: a (a:10911)",
        "5 restart: a (a:10911)",
    ]
    assert world.brokers[A].is_master


def test_who_leads_is_looked_at_when_its_turn_comes() -> None:
    world = World({A: Broker(), SLAVE: Broker(is_master=False)})
    plan = order(world, nowhere_else={"a"})
    world.play(plan, until=1)
    world.brokers[A].is_master, world.brokers[SLAVE].is_master = False, True
    assert world.play(plan) == ["1 restart: a (a:10921)", "4 restart: a (a:10911)"]


def test_where_another_leads_meanwhile_it_begins_again() -> None:
    world = World({A: Broker(), SLAVE: Broker(is_master=False), B: Broker()})
    plan = order(world)
    world.play(plan, until=10)
    world.brokers[A].is_master, world.brokers[SLAVE].is_master = False, True
    assert world.play(plan)[:4] == [
        "1 take write permission: a (a:10911)",
        "11 give write permission back: a (a:10921)",
        "12 take write permission: a (a:10921)",
        "47 restart: a (a:10911)",
    ]


def test_a_name_whose_topics_are_nowhere_else_keeps_its_permission() -> None:
    world = World({A: Broker()})
    assert world.play(order(world, nowhere_else={"a"})) == ["1 restart: a (a:10911)"]


def test_who_takes_sends_alone_for_now_keeps_its_permission() -> None:
    """Somebody had taken that of the other one, as before a repair."""
    world = World({A: Broker(), B: Broker(registers_fully=False)}, wiped={"b"})
    assert world.play(order(world)) == ["1 restart: a (a:10911)", "39 restart: b (b:10911)"]
    assert "restarting a (a:10911): it keeps its write permission, for no other broker has it" in world.said


def test_a_broker_that_does_not_come_back_ends_it_and_the_others_are_not_touched() -> None:
    world = World({A: Broker(restart_takes=None), B: Broker()})
    plan = order(world)
    world.play(plan)
    assert world.events == ["1 take write permission: a (a:10911)", "36 restart: a (a:10911)"]
    assert plan.failure == (
        "a (a:10911) is not back after 1m: it does not answer; a takes no sends until it registers, or: orbitmq broker add-write a; "
        "0 restarted, it was the turn of a (a:10911), 1 not touched"
    )


def test_a_command_that_fails_ends_it_and_the_permission_is_given_back() -> None:
    world = World({A: Broker(), B: Broker()}, command_fails=True)
    plan = order(world)
    assert world.play(plan)[-1] == "36 give write permission back: a (a:10911)"
    assert plan.failure.startswith("the restart of a (a:10911) failed: it ended with 255; 0 restarted")


def test_a_command_that_restarts_nothing_is_noticed() -> None:
    world = World({A: Broker(), B: Broker()})
    plan = order(world)
    world.stop = lambda member: None  # type: ignore[method-assign]
    assert world.play(plan)[-1] == "97 give write permission back: a (a:10911)"
    assert "is not back after 1m: its process is the one that was started at 1970-01-01T00:00:00.001Z" in plan.failure


def test_a_registration_that_brings_no_permission_is_helped() -> None:
    world = World({A: Broker(registers_fully=False), B: Broker()})
    assert world.play(order(world))[:3] == [
        "1 take write permission: a (a:10911)",
        "36 restart: a (a:10911)",
        "41 give write permission back: a (a:10911)",
    ]


def test_a_cluster_that_is_not_well_is_not_touched() -> None:
    world = World({A: Broker(), B: Broker(known=False)})
    plan = order(world)
    assert world.play(plan) == []
    assert plan.failure == (
        "the cluster is not well after 2m: b (b:10911): it is not registered at ns:9876; 0 restarted, 2 not touched"
    )


def test_a_name_without_a_master_is_not_well() -> None:
    world = World({A: Broker(is_master=False), B: Broker()})
    plan = order(world)
    assert world.play(plan) == []
    assert "a has no master" in plan.failure


def test_who_was_restarted_before_is_passed_over() -> None:
    world = World({A: Broker(), B: Broker()})
    plan = order(world, skipped={A.address})
    assert world.play(plan)[0] == "1 take write permission: b (b:10911)"
    assert plan.done == [B]


def test_an_interruption_gives_the_permission_back_and_says_where_it_stood() -> None:
    world = World({A: Broker(), B: Broker()})
    plan = order(world)
    world.play(plan, until=45)
    world.do(plan, plan.interrupted(world.seen(), "interrupted"))
    assert world.events[-1] == "45 give write permission back: b (b:10911)"
    assert plan.failure == "interrupted; 1 restarted, it was the turn of b (b:10911), 0 not touched"
    assert plan.is_over
    assert plan.interrupted(world.seen(), "once more") == []


def test_a_person_is_told_whom_to_restart_and_takes_the_time_that_it_takes() -> None:
    world = World({A: Broker(), B: Broker()})
    plan = order(world, by_hand=True)
    world.play(plan, until=500, by_hand=True)
    assert world.said[-1] == "restart a (a:10911) now: nobody sends to it any more"
    world.stop(A)
    world.play(plan, until=510, by_hand=True)
    assert "a (a:10911) is back after 2s" in world.said
    assert plan.done == [A]


def test_a_broker_that_somebody_else_restarts_ends_it() -> None:
    world = World({A: Broker(), B: Broker()})
    plan = order(world)
    world.play(plan, until=10)
    world.brokers[A].started = 9
    world.play(plan)
    assert "a (a:10911) was started by somebody else" in plan.failure


def test_one_look_without_an_answer_ends_nothing() -> None:
    world = World({A: Broker(), B: Broker()})
    plan = order(world)
    world.play(plan, until=10)
    world.brokers[A].started = None
    world.play(plan, until=12)
    world.brokers[A].started = 1
    world.play(plan)
    assert plan.done == [A, B]
