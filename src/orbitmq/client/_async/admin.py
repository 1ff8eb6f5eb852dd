"""Administration of a cluster: all of `Client.admin` in one place."""

from __future__ import annotations

from orbitmq.client._async.admin_calls import Broker
from orbitmq.client._async.group_admin import GroupAdmin
from orbitmq.client._async.look_up import Peeked, ReadRecords

__all__ = ["Admin", "Broker", "Peeked", "ReadRecords"]


class Admin(GroupAdmin):
    """Administrative calls of a client; see `Client.admin`."""
