"""Users and policies through the end of the process and of the power, at every call that changes something on the disk.

What was answered is there afterwards, what was not may be, and nothing in between: the file is that of one moment.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest import mock

import pytest
from tests.crash.harness import quiet, scratch
from tests.unit.broker.conftest import ListPeer
from tests.worlds.faults import Call, Killed, RecordingFiles

from orbitmq.access.gate import CALLER
from orbitmq.access.policies import Acl
from orbitmq.access.users import ACCESS_FILE, User, UserType
from orbitmq.broker import saved_access
from orbitmq.broker.access_requests import USERS, AccessRequests
from orbitmq.broker.saved_access import AccessFile, SavedAccess
from orbitmq.broker.table_saving import TableSaving
from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.errors import StoreError
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command, request, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.files import Files, OsFiles
from orbitmq.store.worker import InlineWorker

ROOT = User("root", "root-secret", UserType.SUPER)
STEPS = 9
KEYS = pytest.mark.parametrize("keys", [(), (b"k" * 32,)], ids=["open", "sealed"])

State = tuple[list[User], list[Acl]]


class Broken(Exception):
    """A promise was not kept."""


def requests() -> Iterator[tuple[RequestCode, dict[str, str], object]]:
    """A life of two users, the second of which is made again and again."""
    entry = {"resource": "Topic:orders", "actions": ["Pub"], "decision": "Allow"}
    yield RequestCode.AUTH_CREATE_USER, {"username": "alice"}, {"password": "alice-secret"}
    yield RequestCode.AUTH_CREATE_ACL, {"subject": "User:alice"}, {"policies": [{"entries": [entry]}]}
    for number in range(2):
        yield RequestCode.AUTH_CREATE_USER, {"username": "bob"}, {"password": "long-secret" * 90 * number or "p"}
        yield RequestCode.AUTH_UPDATE_USER, {"username": "bob"}, {"userStatus": "disable"}
        yield RequestCode.AUTH_DELETE_USER, {"username": "bob"}, None
    yield RequestCode.AUTH_DELETE_ACL, {"subject": "User:alice"}, None


class AccessLife:
    """The room over files that fail. `states` are all that were ever there; of these the first `answered` were told to somebody."""

    def __init__(self, root: Path, files: Files, keys: tuple[bytes, ...]) -> None:
        clock = ManualClock()
        self.states: list[State] = [([], [])]
        self.answered = 0
        self.access = SavedAccess(AccessFile(files, root / "config" / ACCESS_FILE, keys, bytes), clock)
        self.room = AccessRequests(self.access, TableSaving((self.access,), InlineWorker(), Deadlines(), clock, USERS))
        self.peer = ListPeer(clock)
        self.peer.attachments[CALLER] = ROOT

    def run(self) -> None:
        self.access.load([ROOT])
        self.states.append(state(self.access))
        self.access.save()
        self.answered = len(self.states)
        for code, fields, body in requests():
            self.give(code, fields, body)

    def give(self, code: RequestCode, fields: dict[str, str], body: object) -> None:
        command = request(code, fields)
        command.body = b"" if body is None else json.dumps(body).encode()
        correct = AccessRequests._changed

        def changed(room: AccessRequests, command: Command, peer: Peer, name: str) -> Command | None:
            self.states.append(state(self.access))
            return correct(room, command, peer, name)

        with mock.patch.object(AccessRequests, "_changed", changed):
            answer = self.room.handlers()[code](command, self.peer)
        if answer is None or answer.code:
            raise Broken(f"{code.name} is not answered with success")
        self.answered = len(self.states)


def state(access: SavedAccess) -> State:
    return access.table.users(), access.table.acls()


def check(life: AccessLife, root: Path, keys: tuple[bytes, ...], when: str) -> None:
    """Raises Broken unless the file is that of a state that was answered last, or came after."""
    again = SavedAccess(AccessFile(OsFiles(), root / "config" / ACCESS_FILE, keys), ManualClock())
    try:
        again.load()
    except StoreError as error:
        raise Broken(f"{when}: {error}") from error
    if state(again) not in life.states[max(life.answered - 1, 0) :]:
        raise Broken(f"{when}: what was answered is not there")


def die_everywhere(keys: tuple[bytes, ...]) -> int:
    """Lives that end at each call in turn. How many there were."""
    number = 0
    while True:
        number += 1
        with scratch() as base, quiet():
            root = base / "store"
            root.mkdir()
            files = RecordingFiles(OsFiles(), root, plan=at(number))
            life = AccessLife(root, files, keys)
            try:
                life.run()
            except Killed:
                pass
            else:
                check(life, root, keys, "at the end")
                return number - 1
            check(life, root, keys, f"killed at call {number}")
            for seed in range(3):
                after = base / f"after {seed}"
                files.power_cut(after, random.Random(seed))
                check(life, after, keys, f"power gone at call {number}, seed {seed}")


def at(number: int) -> Callable[[Call], Killed | None]:
    return lambda call: Killed(f"at {call.kind} {call.path.name}") if call.number == number else None


@KEYS
def test_what_was_answered_survives_wherever_the_process_or_the_power_ends(keys: tuple[bytes, ...]) -> None:
    assert die_everywhere(keys) >= STEPS * 5


@contextmanager
def written_in_place() -> Iterator[None]:
    def replace(files: Files, path: Path, data: bytes, **_: bool) -> None:
        file = files.open(path, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.datasync()
        file.close()
        files.sync_dir(path.parent)

    with mock.patch.object(saved_access, "replace_content", replace):
        yield


@contextmanager
def not_synced() -> Iterator[None]:
    def replace(files: Files, path: Path, data: bytes, **_: bool) -> None:
        new = path.with_name("new")
        file = files.create_private(new)
        file.pwrite(data, 0)
        file.close()
        files.rename(new, path)
        files.sync_dir(path.parent)

    with mock.patch.object(saved_access, "replace_content", replace):
        yield


@contextmanager
def answered_before_it_is_saved() -> Iterator[None]:
    def answer(saving: TableSaving, command: Command, peer: Peer, answer: Command, **_: bool) -> Command:
        return response(command, answer.code)

    with mock.patch.object(TableSaving, "answer", answer):
        yield


@pytest.mark.parametrize("bug", [written_in_place, not_synced, answered_before_it_is_saved])
def test_planted_bugs_are_seen(bug: Callable[[], AbstractContextManager[None]]) -> None:
    with bug(), pytest.raises(Broken):
        die_everywhere(())
