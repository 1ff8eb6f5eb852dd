"""May a slave follow: is it one of this group, and is its log a beginning of ours?"""

from __future__ import annotations

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.replication import FOLLOW_TAIL_BYTES, SLAVE_NAME_CHARS_MAX, TICKET_BYTES
from orbitmq.protocol.remoting.replication_bodies import FollowRequest
from orbitmq.replication.epoch_marks import EpochMark, EpochMarks, decode_marks, encode_marks
from orbitmq.replication.kept_state import KeptState, read_state
from orbitmq.replication.log_relation import LogRelation
from orbitmq.replication.ticket_office import FollowRefused, TicketOffice, TwinRefused, adopt_epochs
from orbitmq.replication.tickets import TicketBearer

SECRET = bytes(TICKET_BYTES)
CRC = 7


class Master:
    def __init__(self, *marks: tuple[int, int], end: int = 1_000, began_at: int = 1_000, log_id: str = "a-log") -> None:
        self.state = KeptState("directory-of-the-master", epochs=EpochMarks(EpochMark(*one) for one in marks))
        self.start, self.end = 0, end
        self.log_id = log_id
        self.office = TicketOffice(
            self.state,
            "pair",
            began_at,
            lambda: self.log_id,
            lambda: (self.start, self.end),
            lambda position, size: CRC if position >= 100 else None,
        )

    @property
    def marks(self) -> list[tuple[int, int]]:
        return [(one.epoch, one.start) for one in self.state.epochs.marks]


def request(*marks: tuple[int, int], **more: object) -> FollowRequest:
    epochs = encode_marks(EpochMarks(EpochMark(*one) for one in marks)).decode() if marks else ""
    tail = {"tail_bytes": 50, "tail_crc": CRC} if more.get("end") else {}
    fields = {
        "broker_name": "pair",
        "broker_id": 1,
        "directory": "directory-of-the-slave",
        "epochs": epochs,
        **tail,
        **more,
    }
    return FollowRequest(**fields)  # type: ignore[arg-type]


def test_an_empty_slave_gets_a_ticket_and_the_epochs() -> None:
    master = Master()
    answer = master.office.issue(request(), SECRET, 0)
    assert master.office.redeem(bytes.fromhex(answer.ticket), 1) == TicketBearer("pair", 1, "directory-of-the-slave")
    assert decode_marks(answer.epochs.encode()).marks == (EpochMark(1, 1_000),)


def test_the_first_slave_begins_an_epoch_where_this_process_began_to_write() -> None:
    master = Master(began_at=400)
    assert (master.marks, master.office.is_changed) == ([], False), "nobody has a copy"
    master.office.issue(request(), SECRET, 0)
    assert (master.marks, master.office.is_changed) == ([(1, 400)], True)
    assert master.state.slaves == {1: "directory-of-the-slave"}


def test_a_master_that_has_had_slaves_begins_an_epoch_with_every_start() -> None:
    assert Master((1, 0), (2, 300), began_at=900).marks == [(1, 0), (2, 300), (3, 900)]


def test_an_epoch_that_wrote_nothing_has_no_mark() -> None:
    assert Master((1, 0), (2, 900), began_at=900).marks == [(1, 0), (3, 900)]


def test_epochs_beyond_the_end_of_a_log_that_was_copied_in_part_do_not_count() -> None:
    assert Master((1, 0), (2, 5_000), began_at=900).marks == [(1, 0), (3, 900)]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (request(end=500, log="another-log"), "has another log"),
        (request(end=1_001), "ours ends at 1000"),
        (request((1, 0), end=700), "has parted from ours at 600"),
        (request((1, 0), (3, 500), end=550), "has parted from ours at 500"),
        (request((7, 0), end=500), "where no epoch is known to both"),
        (request(epochs="nonsense", end=500), "list of epochs is damaged"),
        (request(end=500, tail_crc=8), "has other bytes before its end at 500"),
        (request((1, 0), end=500, tail_crc=8), "has other bytes before its end at 500"),
        (request(end=500, tail_bytes=0), "names 0 bytes of its end"),
        (request(end=500, tail_bytes=-1), "names -1 bytes"),
        (request(end=500, tail_bytes=501), "names 501 bytes"),
        (request(end=900, tail_bytes=FOLLOW_TAIL_BYTES + 1), "names 4097 bytes"),
        (request(broker_name="other"), "another group"),
        (request(broker_id=0), "a slave has an id from 1"),
        (request(directory="directory-of-the-master"), "the store of its master"),
        (request(directory=""), "missing or too long"),
    ],
)
def test_who_may_not_follow(wanted: FollowRequest, why: str) -> None:
    master = Master((1, 0), began_at=600)
    with pytest.raises(FollowRefused) as caught:
        master.office.issue(wanted, SECRET, 0)
    assert why in str(caught.value)
    assert master.state.slaves == {}


@pytest.mark.parametrize(
    "wanted",
    [
        request((1, 0), end=600),
        request((1, 0), (2, 600), end=1_000),
        request((1, 0), (2, 600), end=500),
        request(end=500),
        request(end=500, log="a-log"),
        request(end=120, tail_bytes=50, tail_crc=8),
        request((9, 0), log="another-log"),
    ],
)
def test_who_may(wanted: FollowRequest) -> None:
    master = Master((1, 0), began_at=600)
    assert master.office.issue(wanted, SECRET, 0).ticket


def test_a_slave_that_lacks_what_its_master_has_not_any_more_is_told_so() -> None:
    master = Master()
    master.start = 600
    with pytest.raises(FollowRefused, match=r"up to 500, ours begins at 600 .*empty the store"):
        master.office.issue(request(end=500), SECRET, 0)
    assert master.office.issue(request(end=600), SECRET, 0).ticket


def test_an_id_belongs_to_the_directory_that_came_with_it_until_it_is_forgotten() -> None:
    master = Master()
    master.office.issue(request(), SECRET, 0)
    with pytest.raises(FollowRefused, match="another store had this id"):
        master.office.issue(request(directory="a-new-one"), SECRET, 0)
    assert master.office.forget(1)
    assert not master.office.forget(1)
    assert master.office.issue(request(directory="a-new-one"), SECRET, 0).ticket


def test_a_slave_that_takes_over_goes_on_with_the_epochs_of_its_master() -> None:
    master = Master((4, 0), began_at=700)
    slave = KeptState("directory-of-the-slave")
    answer = master.office.issue(request(), SECRET, 0)
    assert adopt_epochs(slave, answer)
    assert not adopt_epochs(slave, answer), "nothing new"
    TicketOffice(slave, "pair", 850, lambda: "", lambda: (0, 850), lambda position, size: None)
    assert [(one.epoch, one.start) for one in slave.epochs.marks] == [(4, 0), (5, 700), (6, 850)]


def test_what_is_kept_is_read_as_it_was_written() -> None:
    state = KeptState("d", {2: "s"}, EpochMarks([EpochMark(1, 0), EpochMark(2, 5, "claim")]))
    read = read_state(state.table(), "new")
    assert (read.directory, read.slaves, read.epochs.marks) == ("d", {2: "s"}, state.epochs.marks)
    assert read_state(None, "new").directory == "new"


@pytest.mark.parametrize(
    "table",
    [{}, {"directory": 5}, {"directory": "d", "epochs": [[2, 0], [1, 5]]}, {"directory": "d", "slaves": {"x": "y"}}],
)
def test_what_cannot_have_been_written_is_refused(table: object) -> None:
    with pytest.raises(StoreDamagedError, match="cannot be read"):
        read_state(table, "new")


# --- comparing, and twins -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "relation"),
    [
        (request(end=500), LogRelation.BEGINNING),
        (request(), LogRelation.BEGINNING),
        (request(end=2_000), LogRelation.PARTED),
        (request(end=500, tail_crc=8), LogRelation.PARTED),
        (request((1, 0), (2, 300), end=500), LogRelation.PARTED),
        (request(end=150), LogRelation.BEHIND),
        (request((1, 0), (2, 100), end=150), LogRelation.PARTED),
        (request(end=500, log="another"), LogRelation.OTHER),
    ],
)
def test_a_slave_asks_what_its_log_is_to_that_of_its_master(wanted: FollowRequest, relation: LogRelation) -> None:
    master = Master((1, 0), end=1_000)
    master.start = 200
    answer = master.office.compare(wanted)
    assert (answer.relation, answer.end, answer.ticket) == (relation.value, 1_000, "")
    assert bool(answer.why) == (relation is not LogRelation.BEGINNING)


def test_a_process_that_was_driven_out_is_refused_while_the_other_follows() -> None:
    master = Master()
    follows = {1: ""}
    master.office.followed_from = lambda slave_id: follows.get(slave_id, "")
    master.office.issue(request(process="a"), SECRET, 0)
    follows[1] = "10.0.0.2:4000"
    master.office.issue(request(process="b"), SECRET, 0)
    with pytest.raises(TwinRefused, match=r"as slave 1, from 10.0.0.2:4000: .*stop one of them"):
        master.office.issue(request(process="a"), SECRET, 0)
    master.office.issue(request(process="b"), SECRET, 0)
    follows[1] = ""
    master.office.issue(request(process="a"), SECRET, 0)
    follows[1] = "10.0.0.3:4000"
    with pytest.raises(TwinRefused):
        master.office.issue(request(process="b"), SECRET, 0)


def test_a_slave_that_was_started_again_takes_the_place_of_its_earlier_connection() -> None:
    """Its machine lost its power: nobody has found the earlier connection dead yet."""
    master = Master()
    master.office.followed_from = lambda slave_id: "10.0.0.2:4000"
    for number in range(20):
        master.office.issue(request(process=f"life {number}"), SECRET, 0)
    master.office.issue(request(), SECRET, 0)


def test_a_slave_that_is_driven_out_does_not_begin_anew_beside_its_twin() -> None:
    """With an empty store it would have another life, and drive out the one that has everything."""
    master = Master()
    follows = {1: ""}
    master.office.followed_from = lambda slave_id: follows.get(slave_id, "")
    master.office.issue(request(process="a"), SECRET, 0)
    follows[1] = "10.0.0.2:4000"
    master.office.issue(request(process="b"), SECRET, 0)
    with pytest.raises(TwinRefused, match="stop one of them"):
        master.office.compare(request(process="a", compares=True))
    assert master.office.compare(request(process="b", compares=True)).relation == "beginning"


def test_a_slave_that_would_get_no_ticket_is_told_why_when_it_asks_what_its_log_is() -> None:
    master = Master()
    master.office.issue(request(), SECRET, 0)
    with pytest.raises(FollowRefused, match=r"another store had this id; .*orbitmq replica remove"):
        master.office.compare(request(directory="another-directory", compares=True))
    assert master.state.slaves == {1: "directory-of-the-slave"}
    with pytest.raises(FollowRefused, match="belongs to another group"):
        master.office.compare(request(broker_name="others", compares=True))


@pytest.mark.parametrize("name", ["process", "log"])
@pytest.mark.parametrize("compares", [False, True])
def test_texts_that_a_master_keeps_or_tells_are_short(name: str, compares: bool) -> None:
    master = Master(log_id="")
    take = master.office.compare if compares else lambda wanted: master.office.issue(wanted, SECRET, 0)
    take(request(**{name: "x" * SLAVE_NAME_CHARS_MAX}))
    with pytest.raises(FollowRefused, match=f"{name} has 129 characters"):
        take(request(**{name: "x" * (SLAVE_NAME_CHARS_MAX + 1)}))
    assert not any(len(life) > SLAVE_NAME_CHARS_MAX for lives in master.office._lives.values() for life in lives)
