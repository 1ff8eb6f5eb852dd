"""What the field `authorization` says, in the forms of all clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.grpc.signature import CallSignature, read_authorization

HEX = "b7a0f0caa9bb90eaf43f5e9bfba5db2c7ff15b09"
SIGNED = CallSignature("ak1", bytes.fromhex(HEX))


@pytest.mark.parametrize(
    "field",
    [
        f"MQv2-HMAC-SHA1 Credential=ak1, SignedHeaders=x-mq-date-time, Signature={HEX.upper()}",
        f"MQv2-HMAC-SHA1 Credential=ak1,SignedHeaders=x-mq-date-time,Signature={HEX}",
        f"MQv2-HMAC-SHA1 Credential=ak1/region/service, SignedHeaders=x-mq-date-time, Signature={HEX}",
        f"another Signature={HEX}, Credential=ak1",
    ],
)
def test_forms_of_the_clients(field: str) -> None:
    assert read_authorization(field.encode()) == SIGNED


@pytest.mark.parametrize(
    "field",
    [
        "",
        "MQv2-HMAC-SHA1",
        f"Credential=ak1,Signature={HEX}",
        f"MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature={HEX}",
        f"MQv2-HMAC-SHA1 Credential=/region, Signature={HEX}",
    ],
)
def test_a_field_may_name_nobody(field: str) -> None:
    assert read_authorization(field.encode()) is None
    assert read_authorization(None) is None


@pytest.mark.parametrize("signature", ["", f"Signature={HEX[1:]}", f"Signature=x{HEX[1:]}", f"signature={HEX}"])
def test_what_is_no_signature_is_one_that_is_never_right(signature: str) -> None:
    assert read_authorization(f"MQv2-HMAC-SHA1 Credential=ak1, {signature}".encode()) == CallSignature("ak1", b"")


def test_a_signature_is_shown_to_nobody() -> None:
    assert repr(SIGNED) == "CallSignature('ak1')"


@given(st.binary() | st.text(alphabet="MQ ,=/CredentialSignature0123é").map(str.encode))
def test_whatever_stands_there_names_somebody_or_nobody(field: bytes) -> None:
    read = read_authorization(field)
    assert read is None or read.access_key
