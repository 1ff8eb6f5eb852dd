"""Administrative calls and their results, for programs and the command line. See `Client.admin`."""

from orbitmq.client._async.administration.admin import Admin, Broker, Peeked
from orbitmq.client.offset_reset import OffsetMove, ResetTo
from orbitmq.client.redrive import DeadLetters, RedriveResult, Refusal

__all__ = ["Admin", "Broker", "DeadLetters", "OffsetMove", "Peeked", "RedriveResult", "Refusal", "ResetTo"]
