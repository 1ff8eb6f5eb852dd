"""Administrative calls and their results, for programs and the command line. See `Client.admin`."""

from orbitmq.client._async.administration.admin import Admin, Broker, Peeked
from orbitmq.client._async.administration.broker_admin import AtNameServer
from orbitmq.client.offset_reset import OffsetMove, ResetTo
from orbitmq.client.redrive import DeadLetters, RedriveResult, Refusal
from orbitmq.protocol.remoting.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

__all__ = [
    "AclInfo",
    "Admin",
    "AtNameServer",
    "Broker",
    "DeadLetters",
    "OffsetMove",
    "Peeked",
    "PolicyEntryInfo",
    "PolicyInfo",
    "RedriveResult",
    "Refusal",
    "ResetTo",
    "UserInfo",
]
