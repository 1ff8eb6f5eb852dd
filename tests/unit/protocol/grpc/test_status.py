"""Codes of RocketMQ's answers over gRPC."""

from __future__ import annotations

import pytest

from orbitmq.protocol.grpc.messages import Code
from orbitmq.protocol.grpc.status import code_of, status_of, status_of_all
from orbitmq.protocol.remoting.codes import ResponseCode


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ResponseCode.SUCCESS, Code.OK),
        (ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS),
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, Code.NOT_IMPLEMENTED),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, Code.CONSUMER_GROUP_NOT_FOUND),
        (ResponseCode.TOPIC_NOT_EXIST, Code.TOPIC_NOT_FOUND),
        (ResponseCode.FLUSH_DISK_TIMEOUT, Code.MASTER_PERSISTENCE_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_PERSISTENCE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, Code.HA_NOT_AVAILABLE),
        (ResponseCode.SYSTEM_ERROR, Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_answers_of_the_broker(answer: ResponseCode, code: Code) -> None:
    assert code_of(answer) is code


def test_a_status_without_a_text_has_the_name_of_its_code() -> None:
    status = status_of(Code.INVALID_RECEIPT_HANDLE)
    assert (status.code, status.message) == (40013, "INVALID_RECEIPT_HANDLE")
    assert status_of(Code.BAD_REQUEST, "why").message == "why"


@pytest.mark.parametrize(
    ("codes", "top"),
    [
        ([Code.OK, Code.OK], Code.OK),
        ([Code.INVALID_RECEIPT_HANDLE], Code.INVALID_RECEIPT_HANDLE),
        ([Code.OK, Code.INVALID_RECEIPT_HANDLE], Code.MULTIPLE_RESULTS),
        ([], Code.BAD_REQUEST),
    ],
)
def test_the_status_above_several(codes: list[Code], top: Code) -> None:
    assert status_of_all(codes) == status_of(top)
