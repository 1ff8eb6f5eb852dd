"""Signatures of requests."""

from __future__ import annotations

from rich.pretty import pretty_repr

from orbitmq.protocol.signing import Credentials, signature

FIELDS = {"topic": "T", "queueId": "0", "AccessKey": "ak1"}


def test_the_signature_of_the_protocol_document() -> None:
    assert signature("sk1", FIELDS, b"BODY") == "SnZhM/Ci9crRnFqBdtTrDjE0uY4="


def test_a_signature_that_is_there_already_does_not_count() -> None:
    assert signature("sk1", {**FIELDS, "Signature": "x"}, b"BODY") == signature("sk1", FIELDS, b"BODY")


def test_every_value_and_the_body_are_signed() -> None:
    genuine = signature("sk1", FIELDS, b"BODY")
    for fields, body in (({**FIELDS, "topic": "U"}, b"BODY"), ({**FIELDS, "more": "1"}, b"BODY"), (FIELDS, b"BODX")):
        assert signature("sk1", fields, body) != genuine
    assert signature("sk2", FIELDS, b"BODY") != genuine


def test_credentials_add_themselves_and_leave_the_fields_alone() -> None:
    fields = {"topic": "T", "queueId": "0"}
    signed = Credentials("ak1", "sk1").signed(fields, memoryview(b"BODY"))
    assert signed == {**FIELDS, "Signature": "SnZhM/Ci9crRnFqBdtTrDjE0uY4="}
    assert fields == {"topic": "T", "queueId": "0"}
    with_token = Credentials("ak1", "sk1", "token").signed(fields, b"BODY")
    assert with_token["SecurityToken"] == "token"
    assert with_token["Signature"] != signed["Signature"]


def test_no_secret_is_printed() -> None:
    assert (
        repr(Credentials("ak1", "hush", "hush"))
        == str(Credentials("ak1", "hush", "hush"))
        == "Credentials(access_key='ak1')"
    )
    assert "hush" not in pretty_repr(Credentials("ak1", "hush", "hush"))
