"""How far an archive is, as text and after a batch."""

from __future__ import annotations

import pytest

from orbitmq.errors import ConfigurationError, StoreDamagedError
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.pipelines.archiving.state import ArchiveState, LandedFile, SourceKind, check_same, decode, encode

QUEUE = MessageQueue("orders", "broker-a", 3)
FILE = LandedFile(staged="s", path="p", rows=1, size_bytes=2)


def test_there_and_back() -> None:
    state = ArchiveState(source=SourceKind.TOPICS, owner="me", fixed={"columns": "body"})
    after = state.after([FILE], {QUEUE: 17}, {"broker-a": 5}).after([], {}, {"broker-b": 6})
    again = decode(encode(after), "here")
    assert again == after
    assert (again.batch, again.queues(), again.files) == (2, {QUEUE: 17}, [])
    assert again.positions == {"broker-a": 5, "broker-b": 6}
    assert state.after([], {}, {"broker-a": 5}, {"broker-a": 1_000}).after([], {}, {}).since == {"broker-a": 1_000}
    assert again.owned_by("you").owner == "you"


def test_what_is_no_state() -> None:
    with pytest.raises(StoreDamagedError, match="here does not say how far the archive is"):
        decode(b"{", "here")
    with pytest.raises(StoreDamagedError):
        decode(b'{"source": "elsewhere", "owner": "x"}', "here")
    with pytest.raises(ConfigurationError, match="written by a later orbitmq"):
        decode(b'{"source": "logs", "owner": "x", "version": 2}', "here")


def test_what_does_not_go_with_the_rest() -> None:
    state = ArchiveState(source=SourceKind.TOPICS, owner="me", fixed={"columns": "body"})
    check_same(state, SourceKind.TOPICS, {"columns": "body", "new": "x"}, "here")
    with pytest.raises(ConfigurationError, match="is an archive of topics, and this run reads logs"):
        check_same(state, SourceKind.LOGS, {}, "here")
    with pytest.raises(ConfigurationError, match="begun with columns 'body', and this run has 'body,tags'"):
        check_same(state, SourceKind.TOPICS, {"columns": "body,tags"}, "here")
