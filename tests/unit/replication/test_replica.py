"""How soon a leader is followed: who begins to lead says so, and who said hello too early says it again."""

from __future__ import annotations

from orbitmq.replication import replica_steps as steps
from orbitmq.replication.replica import Replica
from orbitmq.replication.replica_steps import Effect, Heard, Hello, KeptEpoch, LogIs, ReplicaRole
from orbitmq.replication.view import View

NAMES = ("a", "b", "c")
VIEW = View(epoch=2, serial=4, leader="a", claim="a1", in_sync=NAMES, learners=())
NEXT = VIEW.take_over("b", "b1")


def member(name: str, view: View = VIEW) -> Replica:
    """It has read this view, and kept its epoch."""
    replica = Replica(name, f"{name}1", NAMES, KeptEpoch(2, 4, ""), LogIs(0, 0, (), 0), 0, boot="")
    (asked,) = replica.step(steps.ReadEngine())
    assert isinstance(asked, steps.AskEngine)
    replica.step(steps.EngineHolds(asked.number, view, view.serial))
    replica.step(steps.EpochKept(view.epoch))
    return replica


def hellos(effects: list[Effect]) -> list[str]:
    """To whom."""
    return [
        effect.to for effect in effects if isinstance(effect, steps.SendMessage) and isinstance(effect.message, Hello)
    ]


def test_who_begins_to_lead_says_so_to_all_others() -> None:
    replica = member("b")
    (asked,) = replica.step(steps.SeekLead())
    assert isinstance(asked, steps.AskEngine)
    (asked,) = replica.step(steps.EngineHolds(asked.number, VIEW, VIEW.serial))
    assert isinstance(asked, steps.AskEngine)
    assert asked.view == NEXT
    replica.step(steps.EngineHolds(asked.number, NEXT, NEXT.serial))
    assert replica.role is ReplicaRole.FOLLOWING, "its epoch is not on the disk"
    effects = replica.step(steps.EpochKept(3))
    assert replica.role is ReplicaRole.LEADING
    assert hellos(effects) == ["c", "a"]


def test_a_hello_of_the_leader_has_a_follower_say_its_own_again() -> None:
    replica = member("c", NEXT)
    before = replica.session
    assert hellos(replica.step(Heard(Hello("a", 3, ("a1", 1))))) == [], "who does not lead is no reason"
    effects = replica.step(Heard(Hello("b", 3, ("b1", 0))))
    assert hellos(effects) == ["b"]
    assert replica.session > before
    replica.step(Heard(steps.Welcome("b", 3, replica.session, (), 0)))
    assert replica.following.is_matched
    assert replica.step(Heard(Hello("b", 3, ("b1", 0)))) == [], "it follows already"
