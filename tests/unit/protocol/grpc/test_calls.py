"""Header fields become a call, or say how it ends; a call that is none never becomes one."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.calls import read_call
from orbitmq.protocol.grpc.rpcs import Rpc, Shape
from orbitmq.protocol.http2.request_fields import RequestFields
from orbitmq.protocol.remoting.versions import Language

PATH = b"/apache.rocketmq.v2.MessagingService/"
HEADERS = {
    b":method": b"POST",
    b":scheme": b"http",
    b":path": PATH + b"SendMessage",
    b":authority": b"broker:8081",
    b"content-type": b"application/grpc",
    b"te": b"trailers",
    b"grpc-timeout": b"3S",
    b"x-mq-client-id": b" host@7@1@abc ",
    b"x-mq-language": b"JAVA",
    b"x-mq-client-version": b"5.2.0",
    b"x-mq-namespace": b"ns",
    b"x-mq-request-id": b"8f",
    b"x-mq-date-time": b"20261124T030000Z",
    b"authorization": b"MQv2-HMAC-SHA1 Credential=ak",
    b"x-mq-session-token": b"token",
}


def headers(**changed: bytes | None) -> RequestFields:
    """Those of a send, some with another value or (None) left out; `_` stands for `-`."""
    by_name = {name.replace("_", "-").encode(): value for name, value in changed.items()}
    by_name = {b":" + name if b":" + name in HEADERS else name: value for name, value in by_name.items()}
    return RequestFields.made((name, value) for name, value in {**HEADERS, **by_name}.items() if value is not None)


def test_a_call_says_who_calls_and_for_what() -> None:
    call = read_call(headers())
    assert (call.row.rpc, call.row.shape, call.timeout_ns) == (Rpc.SEND_MESSAGE, Shape.UNARY, 3_000_000_000)
    assert (call.client_id, call.language, call.client_version) == ("host@7@1@abc", Language.JAVA, "5.2.0")
    assert (call.namespace, call.request_id) == ("ns", "8f")
    assert (call.signed_text, call.session_token) == (b"20261124T030000Z", b"token")
    assert call.authorization == b"MQv2-HMAC-SHA1 Credential=ak"


def test_what_a_call_leaves_out_is_empty() -> None:
    names = [name for name in HEADERS if name.startswith((b"x-", b"auth", b"grpc-"))]
    call = read_call(RequestFields.made((name, value) for name, value in HEADERS.items() if name not in names))
    assert (call.client_id, call.language, call.timeout_ns) == ("", Language.OTHER, None)
    assert (call.signed_text, call.authorization, call.session_token) == (None, None, None)


@pytest.mark.parametrize("language", [b"", b"COBOL", b"java", b"\xff"])
def test_a_language_that_nobody_knows_is_another_one(language: bytes) -> None:
    assert read_call(headers(x_mq_language=language)).language is Language.OTHER


def test_bytes_that_are_no_text_are_read_all_the_same() -> None:
    assert read_call(headers(x_mq_client_id=b"a\xffb")).client_id == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize(
    ("text", "timeout_ns"),
    [
        (b"99999999H", 99_999_999 * 3600 * 10**9),
        (b"1M", 60 * 10**9),
        (b"0S", 0),
        (b"20000m", 20 * 10**9),
        (b"7u", 7_000),
        (b"1n", 1),
    ],
)
def test_every_unit_of_a_timeout(text: bytes, timeout_ns: int) -> None:
    assert read_call(headers(grpc_timeout=text)).timeout_ns == timeout_ns


@pytest.mark.parametrize("text", [b"", b"S", b"1", b"1s", b"-1S", b"1.5S", b"100000000S", b" 1S", b"1S\n", b"\xb2S"])
def test_a_timeout_that_is_none_ends_the_call(text: bytes) -> None:
    with pytest.raises(CallError) as caught:
        read_call(headers(grpc_timeout=text))
    assert caught.value.status is GrpcStatus.INVALID_ARGUMENT


@pytest.mark.parametrize("kind", [b"application/grpc+proto", b"application/grpc; charset=utf-8"])
def test_content_types_of_gRPC(kind: bytes) -> None:
    assert read_call(headers(content_type=kind)).row.rpc is Rpc.SEND_MESSAGE


@pytest.mark.parametrize("kind", [None, b"", b"application/json", b"application/grpc-web", b"application/grpc+json"])
def test_another_content_type_is_told_in_the_words_of_HTTP(kind: bytes | None) -> None:
    with pytest.raises(CallError) as caught:
        read_call(headers(content_type=kind))
    assert (caught.value.status, caught.value.http_status) == (GrpcStatus.UNKNOWN, 415)


@pytest.mark.parametrize("method", [None, b"GET", b"post"])
def test_another_method_too(method: bytes | None) -> None:
    with pytest.raises(CallError) as caught:
        read_call(headers(method=method))
    assert caught.value.http_status == 405


@pytest.mark.parametrize(
    "path",
    [None, b"", b"/", PATH, PATH + b"sendMessage", PATH + b"SendMessage/", b"/apache.rocketmq.v2.Admin/ChangeLogLevel"],
)
def test_a_method_that_nobody_has(path: bytes | None) -> None:
    with pytest.raises(CallError) as caught:
        read_call(headers(path=path))
    assert caught.value.status is GrpcStatus.UNIMPLEMENTED


@pytest.mark.parametrize("name", ["PullMessage", "UpdateOffset", "GetOffset", "QueryOffset"])
def test_methods_that_rocketmq_does_not_serve_either(name: str) -> None:
    with pytest.raises(CallError, match=name) as caught:
        read_call(headers(path=PATH + name.encode()))
    assert caught.value.status is GrpcStatus.UNIMPLEMENTED


@given(
    st.lists(st.tuples(st.sampled_from([*HEADERS, b"x"]), st.one_of(st.binary(), st.sampled_from([*HEADERS.values()]))))
)
def test_whatever_the_fields_are_a_call_or_its_error_comes_of_them(fields: list[tuple[bytes, bytes]]) -> None:
    for each in (fields, [*HEADERS.items(), *fields]):
        with suppress(CallError):
            call = read_call(RequestFields.made(each))
            assert isinstance(call.client_id + call.namespace + call.request_id + call.client_version, str)
            assert call.language in Language
