"""The one-step encoder against the general one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.remoting.frame import decode, encode
from orbitmq.protocol.remoting.send_answer import SendAnswers

HOST = pack_host("10.0.0.1", 10_911)
INT32 = st.integers(-(2**31), 2**31 - 1)
OFFSET = st.integers(0, 2**63 - 1)
# A lone surrogate cannot arrive in a header: it has no UTF-8 form.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(INT32, INT32, TEXT | st.text("0123456789ABCDEF", min_size=32, max_size=32), OFFSET, OFFSET)
def test_equal_to_the_general_encoder(opaque, queue_id, key, physical_offset, queue_offset):
    answers = SendAnswers(HOST, "DefaultRegion", True)
    values = (opaque, queue_id, key, physical_offset, queue_offset)
    assert answers.encode(*values) == encode(answers.command(*values))


@pytest.mark.parametrize("region", ["eu-1", "100%", 'quo"te', "süd", ""])
def test_any_region(region):
    answers = SendAnswers(HOST, region, False)
    values = (7, 1, "A" * 32, 4096, 5)
    assert answers.encode(*values) == encode(answers.command(*values))
    assert decode(answers.encode(*values)).fields["MSG_REGION"] == region
