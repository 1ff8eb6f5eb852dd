"""What polls hand out: one queue at a time, finished by the next poll, gone with a dropped queue."""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.client.consuming.process_queue import ProcessQueue
from orbitmq.client.pulling.poll_buffer import PollBuffer


class Message(NamedTuple):
    queue_offset: int
    body: bytes = b"x"


def filled(buffer: PollBuffer[Message], *offsets: int) -> ProcessQueue[Message]:
    source: ProcessQueue[Message] = ProcessQueue(0)
    buffer.add(source, source.put([Message(offset) for offset in offsets]))
    return source


def offsets(messages: list[Message]) -> list[int]:
    return [message.queue_offset for message in messages]


def test_one_take_gives_messages_of_one_pull() -> None:
    buffer: PollBuffer[Message] = PollBuffer()
    filled(buffer, 5, 6, 7)
    filled(buffer, 1, 2)
    assert offsets(buffer.take(2)) == [5, 6]
    assert offsets(buffer.take(2)) == [7]
    assert offsets(buffer.take(9)) == [1, 2]
    assert buffer.take(9) == []


def test_what_is_in_hand_is_unsettled_until_it_is_finished() -> None:
    buffer: PollBuffer[Message] = PollBuffer()
    source = filled(buffer, 5, 6, 7)
    buffer.take(2)
    assert source.first_offset() == 5
    buffer.finish(0)
    assert (source.first_offset(), len(source)) == (7, 1)
    buffer.finish(0)
    assert source.first_offset() == 7


def test_a_dropped_queue_takes_along_what_is_ready_and_in_hand() -> None:
    buffer: PollBuffer[Message] = PollBuffer()
    left, kept = filled(buffer, 5, 6), filled(buffer, 1)
    buffer.take(1)
    left.drop()
    buffer.finish(0)
    assert buffer.next_offset(kept) == 1
    assert offsets(buffer.take(9)) == [1]
    kept.drop()
    buffer.forget_dropped()
    buffer.finish(0)
    assert buffer.take(1) == []


def test_the_next_offset_of_a_queue_is_that_of_its_first_ready_message() -> None:
    buffer: PollBuffer[Message] = PollBuffer()
    first, second = filled(buffer, 5, 6), filled(buffer, 1)
    assert (buffer.next_offset(first), buffer.next_offset(second)) == (5, 1)
    buffer.take(1)
    assert buffer.next_offset(first) == 6
    buffer.take(1)
    assert buffer.next_offset(first) is None
