"""What a master remembers of slaves that do not follow."""

from __future__ import annotations

from orbitmq.limits.replication import COPIES_MAX
from orbitmq.replication.away_slaves import AwaySlave, AwaySlaves

AT = "10.0.0.7:10911"


def known(slaves: AwaySlaves) -> dict[str, AwaySlave]:
    return dict(slaves.besides(()))


def test_a_slave_that_went_is_known_by_its_place_and_why() -> None:
    slaves = AwaySlaves()
    slaves.asked("1", AT, 100, "", 5)
    slaves.gone("1", AT, 700, "connection lost", 9)
    assert known(slaves) == {"1": AwaySlave(AT, 700, 9, "", "connection lost")}
    assert known(slaves)["1"].why == "connection lost"
    assert dict(slaves.besides({"1"})) == {}, "it follows again"
    slaves.forget("1")
    assert known(slaves) == {}


def test_trouble_of_a_store_is_the_reason_until_it_asks_without() -> None:
    slaves = AwaySlaves()
    assert slaves.asked("1", AT, 100, "the disk is full", 1), "it is news"
    slaves.gone("1", AT, 100, "connection lost", 2)
    assert not slaves.asked("1", AT, 100, "the disk is full", 3), "for the second time"
    assert known(slaves)["1"].why == "trouble with its store: the disk is full"
    assert slaves.trouble_of("1") == "the disk is full"
    assert not slaves.asked("1", AT, 100, "", 4)
    assert (known(slaves)["1"].why, slaves.trouble_of("1")) == ("connection lost", "")
    assert slaves.asked("1", AT, 100, "the disk is full", 5), "and news again"


def test_a_connection_that_ended_before_it_said_where_it_is_keeps_the_place_known_before() -> None:
    slaves = AwaySlaves()
    slaves.gone("1", AT, None, "slave is beyond our end", 1)
    assert known(slaves)["1"].position == 0
    slaves.asked("1", AT, 300, "", 2)
    slaves.gone("1", AT, None, "slave is beyond our end", 3)
    assert known(slaves)["1"].position == 300


def test_a_refusal_is_the_reason_and_changes_nothing_else() -> None:
    slaves = AwaySlaves()
    slaves.refused("9", "another store", 1)
    assert known(slaves) == {}, "whoever that is, no slave with this id has followed"
    slaves.gone("1", AT, 700, "connection lost", 2)
    slaves.refused("1", "its log has parted", 3)
    assert known(slaves) == {"1": AwaySlave(AT, 700, 3, "", "refused: its log has parted")}


def test_as_many_as_may_follow_are_remembered() -> None:
    slaves = AwaySlaves()
    for number in range(COPIES_MAX + 1):
        slaves.gone(str(number), AT, 1, "connection lost", number)
    assert list(known(slaves)) == [str(number) for number in range(1, COPIES_MAX + 1)]
