"""Who has signed a request: RocketMQ's signature over the fields as they were kept."""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable

import pytest

import orbitmq.access.authentication
from orbitmq.access.authentication import Authentication, SigningKey, Unproven
from orbitmq.access.users import User, UserStatus
from orbitmq.limits.access import FIELD_ORDERS_KEPT_MAX
from orbitmq.protocol.grpc.signature import CallSignature
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command, decode_parts, request
from orbitmq.protocol.remoting.versions import version_ordinal
from orbitmq.protocol.signing import Credentials, signature

USERS = {
    "ak1": User("ak1", "sk1"),
    "off": User("off", "sk2", status=UserStatus.DISABLED),
    "long": User("long", "\u00e4" * 200),
}
CODE = RequestCode.GET_MAX_OFFSET


@pytest.fixture
def authentication() -> Authentication:
    return Authentication(USERS.get)


def signed(name: str = "ak1", secret: str = "sk1", body: bytes = b"BODY", **fields: str) -> Command:
    return request(CODE, Credentials(name, secret).signed({"topic": "T", "queueId": "0", **fields}, body), body)


def test_the_vector_of_the_protocol(authentication: Authentication) -> None:
    fields = {"topic": "T", "queueId": "0", "AccessKey": "ak1", "Signature": "SnZhM/Ci9crRnFqBdtTrDjE0uY4="}
    assert authentication.caller(request(CODE, fields, b"BODY")) is USERS["ak1"]
    assert authentication.caller(request(CODE, fields, b"BODZ")) is Unproven.WRONG_SIGNATURE
    assert authentication.caller(request(CODE, {**fields, "queueId": "1"}, b"BODY")) is Unproven.WRONG_SIGNATURE


@pytest.mark.parametrize("secret", ["s", "s" * 64, "s" * 65, "\u00e4" * 40, "\U0001f511"])
@pytest.mark.parametrize("body", [b"", b"x", b"x" * 70_000, memoryview(b"view")])
def test_a_key_made_ready_signs_like_the_library(secret: str, body: bytes) -> None:
    expected = b64encode(hmac.digest(secret.encode(), b"text" + bytes(body), "sha1"))
    assert SigningKey(secret).signature(b"text", body) == expected


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (request(CODE, None), Unproven.NO_NAME),
        (request(CODE, {"AccessKey": "", "Signature": "x"}), Unproven.NO_NAME),
        (signed("nobody"), Unproven.UNKNOWN_USER),
        (signed("off", "sk2"), Unproven.DISABLED),
        (signed("ak1", "sk2"), Unproven.WRONG_SIGNATURE),
        (request(CODE, {"AccessKey": "ak1"}), Unproven.WRONG_SIGNATURE),
        (request(CODE, {"AccessKey": "ak1", "Signature": ""}), Unproven.WRONG_SIGNATURE),
        (request(CODE, {"AccessKey": "ak1", "Signature": "\u00e4" * 28}), Unproven.WRONG_SIGNATURE),
        (request(CODE, {"AccessKey": "ak1", "Signature": "A" * 1_000_000}), Unproven.WRONG_SIGNATURE),
    ],
)
def test_nobody_is_believed_without_a_right_signature(
    authentication: Authentication, command: Command, why: Unproven
) -> None:
    assert authentication.caller(command) is why


def test_a_signature_of_one_user_is_none_of_another(authentication: Authentication) -> None:
    command = signed()
    command.fields["AccessKey"] = "long"
    assert authentication.caller(command) is Unproven.WRONG_SIGNATURE


def test_a_field_that_nobody_knows_is_signed_as_well(authentication: Authentication) -> None:
    assert authentication.caller(signed(zzz="1", ns="x", ReqT="0")) is USERS["ak1"]
    command = signed()
    command.fields["zzz"] = "1"
    assert authentication.caller(command) is Unproven.WRONG_SIGNATURE


def believed(authentication: Authentication) -> list[str]:
    """Signed topics with which a request is believed that names the topic U and then T. The last one counts, also for handlers."""
    found = []
    for signed_topic in ("T", "U", "UT", "TU", ""):
        by = signature("sk1", {"AccessKey": "ak1", "topic": signed_topic})
        members = f'"topic":"U","AccessKey":"ak1","topic":"T","Signature":"{by}"'
        command = decode_parts(0, f'{{"code":{int(CODE)},"extFields":{{{members}}}}}'.encode(), b"")
        assert command.fields["topic"] == "T"
        if authentication.caller(command) is USERS["ak1"]:
            found.append(signed_topic)
    return found


def test_of_a_field_that_stands_twice_the_last_is_signed_and_handled(authentication: Authentication) -> None:
    """A signature over what stood there first, or over both, belongs to another request."""
    assert believed(authentication) == ["T"]


@pytest.mark.parametrize("wrong", ["U", "UT"])
def test_planted_signatures_over_the_wrong_bytes_of_a_field_that_repeats_are_found(
    authentication: Authentication, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the check is made over the first of both fields, or over both."""
    right = Authentication.caller

    def caller(self: Authentication, command: Command) -> User | Unproven:
        return right(self, request(command.code, {**command.fields, "topic": wrong}))

    monkeypatch.setattr(Authentication, "caller", caller)
    assert believed(authentication) == [wrong]


def test_names_are_ordered_as_java_orders_texts(authentication: Authentication) -> None:
    """By 16-bit units: a name beyond them stands before U+FFFD, though its code point is greater."""
    fields = {"\ufffd": "2", "\U0001f600": "1", "AccessKey": "ak1"}
    by = b64encode(hmac.digest(b"sk1", b"ak112", "sha1")).decode()
    assert authentication.caller(request(CODE, {**fields, "Signature": by})) is USERS["ak1"]


class TestClientsUpTo493:
    """They set `_UNIQUE_KEY_QUERY` after they have signed."""

    def command(self, code: int, version: str) -> Command:
        fields = Credentials("ak1", "sk1").signed({"topic": "T", "key": "K"})
        return request(code, {**fields, "_UNIQUE_KEY_QUERY": "true"}, version=version_ordinal(version))

    def test_what_they_do_not_sign_is_left_out(self, authentication: Authentication) -> None:
        assert authentication.caller(self.command(RequestCode.QUERY_MESSAGE, "4.9.3")) is USERS["ak1"]

    def test_what_they_sign_nevertheless_is_right_too(self, authentication: Authentication) -> None:
        fields = Credentials("ak1", "sk1").signed({"topic": "T", "_UNIQUE_KEY_QUERY": "true"})
        command = request(RequestCode.QUERY_MESSAGE, fields, version=version_ordinal("4.9.3"))
        assert authentication.caller(command) is USERS["ak1"]

    @pytest.mark.parametrize(("code", "version"), [(RequestCode.QUERY_MESSAGE, "4.9.4"), (CODE, "4.9.3")])
    def test_later_clients_and_other_requests_sign_everything(
        self, authentication: Authentication, code: int, version: str
    ) -> None:
        assert authentication.caller(self.command(code, version)) is Unproven.WRONG_SIGNATURE


def test_a_new_password_counts_at_once() -> None:
    users = dict(USERS)
    authentication = Authentication(users.get)
    assert authentication.caller(signed()) is users["ak1"]
    users["ak1"] = User("ak1", "other")
    assert authentication.caller(signed()) is Unproven.WRONG_SIGNATURE
    assert authentication.caller(signed(secret="other")) is users["ak1"]
    del users["ak1"]
    assert authentication.caller(signed(secret="other")) is Unproven.UNKNOWN_USER
    assert not authentication._keys


def test_only_right_requests_of_usual_kinds_are_kept_in_mind(authentication: Authentication) -> None:
    for number in range(FIELD_ORDERS_KEPT_MAX * 2):
        assert authentication.caller(signed(**{f"x{number}": "1"})) is USERS["ak1"]
        assert authentication.caller(signed(secret="wrong", **{f"y{number}": "1"})) is Unproven.WRONG_SIGNATURE
    assert not any(name.startswith("y") for names in authentication._orders for name in names)
    assert len(authentication._orders) <= FIELD_ORDERS_KEPT_MAX
    authentication.caller(signed(**{"n" * 10_000: "1"}))
    assert max(sum(map(len, names)) for names in authentication._orders) < 1_000


def judge_call_signatures(authentication: Authentication) -> None:
    """Whether the signature of a gRPC call has to be right as a whole."""
    date = b"20261124T030000Z"
    right = hmac.digest(b"sk1", date, "sha1")
    assert authentication.caller_of_call(CallSignature("ak1", right), date) is USERS["ak1"]
    wrong = Unproven.WRONG_SIGNATURE
    for at in range(len(right)):
        changed = right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :]
        for part in (changed, right[:at], right[at + 1 :], right + right[:at] + b"\0"):
            assert authentication.caller_of_call(CallSignature("ak1", part), date) is wrong
    assert authentication.caller_of_call(CallSignature("ak1", right), b"20261124T030001Z") is wrong
    assert authentication.caller_of_call(CallSignature("ak1", right), None) is wrong


@pytest.mark.parametrize(
    "compare",
    [lambda ours, given: ours.startswith(given), lambda ours, given: given.startswith(ours), lambda ours, given: True],
    ids=["a beginning is enough", "what stands behind it is not looked at", "nothing is compared"],
)
def test_planted_signatures_that_are_not_compared_whole_are_found(
    compare: Callable[[bytes, bytes], bool], authentication: Authentication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.access.authentication.compare_digest", compare)
    with pytest.raises(AssertionError):
        judge_call_signatures(authentication)


def test_signatures_are_compared_in_constant_time() -> None:
    assert orbitmq.access.authentication.compare_digest is hmac.compare_digest


def test_a_gRPC_call_is_signed_over_its_date(authentication: Authentication) -> None:
    judge_call_signatures(authentication)
    date = b"20261124T030000Z"
    right = hmac.digest(b"sk1", date, "sha1")
    assert authentication.caller_of_call(CallSignature("nobody", right), date) is Unproven.UNKNOWN_USER
    assert authentication.caller_of_call(CallSignature("off", right), date) is Unproven.DISABLED


def test_secrets_of_users_who_came_and_went_are_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.access.authentication.USERS_MAX", 3)
    passing = Authentication(lambda name: User(name, "sk1"))
    for number in range(10):
        assert passing.caller(signed(f"user{number}")) == User(f"user{number}", "sk1")
    assert len(passing._keys) <= 3


def test_names_of_fields_and_the_ends_of_values_are_not_signed(authentication: Authentication) -> None:
    """RocketMQ's signature, which knows no code either: only TLS keeps them (SECURITY.md)."""
    made = signed(topic="T", queueId="0").fields["Signature"]
    for fields in ({"a": "0", "b": "T"}, {"other": "0T"}):
        changed = request(
            RequestCode.DELETE_TOPIC_IN_BROKER, {**fields, "AccessKey": "ak1", "Signature": made}, b"BODY"
        )
        assert authentication.caller(changed) is USERS["ak1"]
