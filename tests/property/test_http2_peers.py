"""Our HTTP/2 beside the libraries h2 and libnghttp2: as a third server of the same frames, and as the server of their clients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.worlds.http2_dialogues import Dialogue, H2Client, Nghttp2Client
from tests.worlds.http2_judges import BREAKING, TalkMaker, by_h2, by_nghttp2, ours

from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.events import Event
from orbitmq.protocol.http2.frames import PADDED
from orbitmq.protocol.http2.stream_states import STREAM_TABLE, StreamEvent, StreamState

TALKS = 150
DIALOGUES = 60


def sound_talks() -> None:
    maker = TalkMaker(1)
    requests = 0
    for _ in range(TALKS):
        talk = maker.talk()
        read = ours([talk.sent])
        assert not read.refused
        assert by_h2(talk.sent) == by_nghttp2(talk.sent) == read
        requests += len(read.requests)
    assert requests > TALKS


def broken_talks() -> None:
    maker = TalkMaker(2)
    for rule in BREAKING:
        for _ in range(5):
            talk = maker.talk(rule)
            assert by_h2(talk.sent).refused or by_nghttp2(talk.sent).refused
            assert ours([talk.sent]).refused, rule


def dialogues() -> None:
    for seed in range(DIALOGUES):
        for client in (H2Client, Nghttp2Client):
            Dialogue(seed, client).run(60)


def test_three_servers_read_the_same() -> None:
    sound_talks()


def test_what_others_refuse_is_refused() -> None:
    broken_talks()


def test_clients_get_their_answers_through_any_window() -> None:
    dialogues()


def test_cutting_changes_nothing() -> None:
    maker = TalkMaker(3)
    for number in range(40):
        talk = maker.talk(sorted(BREAKING)[number % len(BREAKING)] if number % 2 else None)
        whole = ours([talk.sent])
        for size in (1, 10, 1_000):
            assert ours([talk.sent[at : at + size] for at in range(0, len(talk.sent), size)]) == whole


def forget_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding is not counted in a window."""
    sound = Http2Connection._take_data

    def planted(
        self: Http2Connection, data: bytes, at: int, end: int, flags: int, stream_id: int, events: list[Event]
    ) -> None:
        padding = data[at] + 1 if flags & PADDED and at < end else 0
        self._receive_window += padding
        if stream_id in self._streams:
            self._streams[stream_id].receive_window += padding
        sound(self, data, at, end, flags, stream_id, events)

    monkeypatch.setattr(Http2Connection, "_take_data", planted)


def forget_cancelled_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that was reset is not counted."""
    for state in (StreamState.OPEN, StreamState.REQUEST_WHOLE):
        monkeypatch.setitem(STREAM_TABLE, (state, StreamEvent.RESET), StreamState.CLOSED)


@pytest.mark.parametrize(("plant", "judge"), [(forget_padding, broken_talks), (forget_cancelled_streams, dialogues)])
def test_planted_bugs_are_caught(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], judge: Callable[[], None]
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        judge()
