"""Frames that the Java client and broker exchanged about recalls: we read them, and write the same handles."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.protocol.recall_handles import decode_handle, encode_handle
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, decode

FRAMES = [
    json.loads(line) for line in (Path(__file__).parents[3] / "vectors/recall/frames.jsonl").read_text().splitlines()
]
NO_HANDLE = "!!!"


def command(frame: dict[str, Any]) -> Command:
    return decode(b64decode(frame["frame_b64"]))


def handles() -> list[str]:
    found = [command(frame).fields["recallHandle"] for frame in FRAMES]
    return sorted({handle for handle in found if handle != NO_HANDLE})


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: f"{frame['direction']}-{frame['serialize']}")
def test_a_frame_says_what_was_recorded(frame: dict[str, Any]) -> None:
    read = command(frame)
    assert read.code == frame["code"]
    assert read.fields == frame["fields"]


@pytest.mark.parametrize("handle", handles())
def test_a_handle_of_the_java_broker_is_read_and_written_alike(handle: str) -> None:
    said = decode_handle(handle)
    assert encode_handle(said.topic, said.broker_name, said.timestamp_ms - 1, said.message_id) == handle


def test_an_answer_to_a_send_names_its_own_message() -> None:
    answers = [command(frame) for frame in FRAMES if frame["direction"] == "response"]
    assert answers
    for answer in answers:
        assert decode_handle(answer.fields["recallHandle"]).message_id == answer.fields["transactionId"]


def requests() -> list[dict[str, Any]]:
    return [frame for frame in FRAMES if frame["code"] == RequestCode.RECALL_MESSAGE]


@pytest.mark.parametrize("frame", requests(), ids=lambda frame: frame["serialize"])
def test_a_recorded_request_recalls_what_it_names(rig, frame: dict[str, Any]) -> None:
    asked = command(frame)
    topic = asked.fields["topic"]
    try:
        handle = decode_handle(asked.fields["recallHandle"])
    except ProtocolError:
        rig.sent_ok(topic)
        assert rig.call(asked.code, dict(asked.fields)).code == ResponseCode.ILLEGAL_OPERATION
        return
    rig.clock.set_wall(handle.timestamp_ms - 60_000)
    rig.send_at(handle.message_id, handle.timestamp_ms, topic=topic)
    answer = rig.call(asked.code, dict(asked.fields))
    assert (answer.code, answer.fields["msgId"]) == (ResponseCode.SUCCESS, handle.message_id)
    assert rig.timers.pending_count == 0
