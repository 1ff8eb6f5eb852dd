"""A template gives the bytes that encoding each pull anew would give."""

from __future__ import annotations

import pytest

from orbitmq.client.bulk.pull_template import PullTemplate
from orbitmq.client.pulling.pull_request import PullRequest
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.frame import encode, request
from orbitmq.protocol.signing import Credentials

SIGNER = Credentials("ops", "hush")


@pytest.mark.parametrize("expression", ["*", "paid || new", 'od"d %d {"queueOffset":"0"}'])
@pytest.mark.parametrize(("offset", "count"), [(0, 1), (7, 1000), (2**62, 32)])
def test_frames_are_those_of_the_encoder(expression: str, offset: int, count: int) -> None:
    def pull(offset: int, count: int) -> PullRequest:
        queue = MessageQueue("orders", "broker-a", 3)
        return PullRequest(group="g", queue=queue, offset=offset, count=count, bytes_count=9, expression=expression)

    meant = pull(offset, count)
    for credentials, fields in ((None, meant.fields()), (SIGNER, SIGNER.signed(meant.fields()))):
        template = PullTemplate(pull(0, 1), credentials)
        wanted = encode(request(meant.code, fields, opaque=77))
        assert template.pull(offset, count)(77) == wanted
        assert len(wanted) <= template.frame_bytes_max
