"""Administrative calls and their results, for programs and the command line. See `Client.admin`."""

from orbitmq.client._async.admin import Admin, Broker, Peeked

__all__ = ["Admin", "Broker", "Peeked"]
