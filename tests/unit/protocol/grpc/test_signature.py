"""What the field `authorization` says, in the forms of all clients."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
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
        "MQv2-HMAC-SHA1 Credential=ak1",
        f"MQv2-HMAC-SHA1 Credential=ak1, Signature={HEX[1:]}",
        f"MQv2-HMAC-SHA1 Credential=ak1, Signature=x{HEX[1:]}",
    ],
)
def test_what_is_no_signature_is_refused_without_its_words(field: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_authorization(field.encode())
    assert "ak1" not in str(caught.value)
    assert HEX[1:] not in str(caught.value)


@given(st.binary() | st.text(alphabet="MQ ,=/CredentialSignature0123é").map(str.encode))
def test_whatever_stands_there_is_read_or_refused(field: bytes) -> None:
    with suppress(ProtocolError):
        assert read_authorization(field).access_key
