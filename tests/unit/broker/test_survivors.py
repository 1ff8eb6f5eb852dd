"""Consumers that live on where a log ends earlier than they have read are taken back to what is left, once, and nobody else is."""

from __future__ import annotations

import shutil

import pytest

from orbitmq.broker import survivors
from orbitmq.limits.broker import SURVIVORS_EXPECTED_MS
from orbitmq.protocol.remoting.bodies import MessageModel
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

NAMES = {"consumerGroup": "g", "topic": "T", "queueId": 0}


@pytest.fixture
def used(rig):
    """A rig with topic T and group g, which has read more than the three messages that are written."""
    for _ in range(3):
        rig.sent_ok("T")
    rig.heartbeat(rig.peer(), "c", "g", ["T"])
    return rig


def crash(used, place):
    """The broker comes back from what a power failure leaves of its directory: three messages; then six others come."""
    used.broker.offsets.save()
    shutil.copytree(used.root, place, dirs_exist_ok=True)
    used.close()
    used.root = place
    used.open()
    for _ in range(6):
        used.sent_ok("T")


def pulled(used, offset, **more):
    answer = used.pull("T", offset, **more)
    return answer.code, answer.remark, answer.fields["nextBeginOffset"]


def commit(used, offset, **more):
    return used.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**NAMES, "commitOffset": offset}, **more)


def member(used, name="c", group="g", **more):
    peer = used.peer()
    used.heartbeat(peer, name, group, ["T"], **more)
    return peer


TAKEN_BACK = ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", "3"


class TestOfAGroupWithASavedOffset:
    def test_is_taken_back_once(self, used, tmp_path, caplog):
        """It had read up to 8; of that 3 are left, and 6 others have the numbers 3 to 8."""
        commit(used, 1)
        crash(used, tmp_path / "after")
        assert pulled(used, 8) == TAKEN_BACK
        assert "wants to go on at 8 on queue 0 of T, which came back with 3 messages" in caplog.text
        assert pulled(used, 8)[0] == ResponseCode.SUCCESS, "who insists, gets it"

    def test_is_left_where_somebody_wanted_it(self, used, tmp_path):
        commit(used, 1)
        crash(used, tmp_path / "after")
        used.broker.offsets.reset("g", "T", 0, 7)
        assert pulled(used, 1)[1:] == ("OFFSET_RESET", "7")
        assert pulled(used, 7)[0] == ResponseCode.SUCCESS

    def test_an_orderly_stop_takes_nothing(self, used, tmp_path):
        commit(used, 1)
        crash(used, tmp_path / "after")
        used.reopen()
        assert pulled(used, 8)[0] == ResponseCode.SUCCESS

    def test_a_copy_has_the_numbers_of_its_master_and_takes_nobody_back(self, used, tmp_path):
        commit(used, 1)
        crash(used, tmp_path / "after")
        used.store.only_copy("it follows")
        assert used.broker.core.survivors.pulled("g", "T", 0, 8, member(used)) is None

    def test_who_lacks_nothing_takes_nobody_back(self, used, tmp_path):
        """A member of a replicated group began with less, has followed since, and leads now."""
        commit(used, 1)
        crash(used, tmp_path / "after")
        used.broker.core.survivors.expect_nobody()
        assert pulled(used, 8)[0] == ResponseCode.SUCCESS

    def test_is_expected_for_a_day(self, used, tmp_path):
        """Later whoever comes wants to be where it says."""
        commit(used, 1)
        crash(used, tmp_path / "after")
        used.advance(SURVIVORS_EXPECTED_MS)
        assert pulled(used, 8)[0] == ResponseCode.SUCCESS

    def test_a_take_over_expects_those_of_the_master_before_and_none_of_an_earlier_crash(self, used, tmp_path):
        """The crash left 3; then this broker copied up to 9, of which one consumer knows; another has read 10 at the old master."""
        for group in ("g", "behind"):
            used.broker.offsets.commit(group, "T", 0, 1)
        crash(used, tmp_path / "after")
        used.broker.core.survivors.take_over()
        for _ in range(3):
            used.sent_ok("T")
        assert pulled(used, 10)[1:] == ("OFFSET_RESET", "9")
        assert pulled(used, 9, group="behind")[0] == ResponseCode.SUCCESS


class TestOfAGroupWithoutOne:
    def test_a_member_that_goes_on_is_taken_back_once(self, used, tmp_path):
        crash(used, tmp_path / "after")
        peer = member(used)
        assert pulled(used, 8, peer=peer) == TAKEN_BACK
        assert pulled(used, 8, peer=peer)[0] == ResponseCode.SUCCESS

    def test_a_take_over_expects_it_as_well(self, used):
        used.broker.core.survivors.take_over()
        for _ in range(6):
            used.sent_ok("T")
        assert pulled(used, 8, peer=member(used)) == TAKEN_BACK

    def test_whoever_has_read_on_from_what_was_left_goes_on(self, used, tmp_path):
        crash(used, tmp_path / "after")
        peer = member(used)
        assert pulled(used, 3, peer=peer)[0] == ResponseCode.SUCCESS
        assert pulled(used, 8, peer=peer)[0] == ResponseCode.SUCCESS

    def test_a_member_is_taken_back_though_another_one_asked_first(self, used, tmp_path):
        """The other one was the only one that the broker knew, and asked for all queues."""
        crash(used, tmp_path / "after")
        first, second = member(used, "first"), member(used, "second")
        assert used.call(RequestCode.QUERY_CONSUMER_OFFSET, NAMES, peer=first).fields["offset"] == "0"
        assert pulled(used, 8, peer=second) == TAKEN_BACK

    def test_a_member_goes_on_where_another_one_has_read_on(self, used, tmp_path):
        crash(used, tmp_path / "after")
        first, second = member(used, "first"), member(used, "second")
        for offset in (3, 8):
            assert pulled(used, offset, peer=first)[0] == ResponseCode.SUCCESS
        commit(used, 8, peer=second)
        assert used.broker.offsets.query("g", "T", 0) == 8
        assert pulled(used, 8, peer=second)[0] == ResponseCode.SUCCESS

    def test_whoever_asked_for_its_offset_begins_where_it_wants(self, used, tmp_path):
        """As a new group that begins with the latest message does."""
        crash(used, tmp_path / "after")
        peer = member(used)
        question = {**NAMES, "setZeroIfNotFound": False}
        assert used.call(RequestCode.QUERY_CONSUMER_OFFSET, question, peer=peer).code != 0
        assert pulled(used, 8, peer=peer)[0] == ResponseCode.SUCCESS

    def test_what_a_stranger_asks_about_the_group_says_nothing_of_it(self, used, tmp_path):
        crash(used, tmp_path / "after")
        used.call(RequestCode.QUERY_CONSUMER_OFFSET, NAMES)
        assert pulled(used, 8, peer=member(used)) == TAKEN_BACK

    def test_a_pull_before_the_first_heartbeat_does_not_count(self, used, tmp_path):
        crash(used, tmp_path / "after")
        peer = used.peer()
        assert pulled(used, 8, peer=peer)[0] == ResponseCode.SUCCESS
        used.heartbeat(peer, "c", "g", ["T"])
        assert pulled(used, 8, peer=peer) == TAKEN_BACK

    @pytest.mark.parametrize("why", ["is no member", "comes late"])
    def test_whoever_keeps_its_offsets_itself_begins_where_it_wants(self, used, tmp_path, why):
        crash(used, tmp_path / "after")
        if why == "comes late":
            used.advance(SURVIVORS_EXPECTED_MS)
        peer = member(used) if why == "comes late" else used.peer()
        assert pulled(used, 8, peer=peer)[0] == ResponseCode.SUCCESS

    def test_a_full_table_takes_nobody_back_for_ever(self, used, tmp_path, monkeypatch):
        monkeypatch.setattr(survivors, "OFFSET_QUEUES_MAX", 0)
        crash(used, tmp_path / "after")
        assert pulled(used, 8, peer=member(used))[0] == ResponseCode.SUCCESS


class TestOfAGroupThatBroadcasts:
    def test_each_member_is_looked_at(self, used, tmp_path):
        crash(used, tmp_path / "after")
        for name in ("one", "other"):
            peer = member(used, name, "all", message_model=MessageModel.BROADCASTING)
            assert pulled(used, 8, group="all", peer=peer) == TAKEN_BACK
            assert pulled(used, 8, group="all", peer=peer)[0] == ResponseCode.SUCCESS

    @pytest.mark.parametrize("code", [RequestCode.GET_MAX_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP])
    def test_whoever_asked_where_the_queue_ends_begins_there(self, used, tmp_path, code):
        crash(used, tmp_path / "after")
        peer = member(used, "new", "all", message_model=MessageModel.BROADCASTING)
        used.call(code, {**NAMES, "timestamp": 0}, peer=peer)
        assert pulled(used, 8, group="all", peer=peer)[0] == ResponseCode.SUCCESS


class TestACommit:
    def test_at_a_copy_does_not_outlive_its_take_over(self, used):
        """A consumer of the master that is gone told the copy how far it had read there."""
        used.store.only_copy("it follows")
        commit(used, 8, peer=member(used))
        assert used.broker.offsets.query("g", "T", 0) == 8
        used.broker.core.survivors.take_over()
        assert used.broker.offsets.query("g", "T", 0) == 3

    def test_that_comes_before_the_first_pull_is_cut_and_the_pull_taken_back(self, used, tmp_path):
        crash(used, tmp_path / "after")
        peer = member(used)
        commit(used, 8, peer=peer)
        assert used.broker.offsets.query("g", "T", 0) == 3
        assert pulled(used, 8, peer=peer) == TAKEN_BACK
        commit(used, 9, peer=peer)
        assert used.broker.offsets.query("g", "T", 0) == 9

    def test_of_a_tool_says_what_it_means(self, used, tmp_path):
        crash(used, tmp_path / "after")
        commit(used, 8)
        assert used.broker.offsets.query("g", "T", 0) == 8
