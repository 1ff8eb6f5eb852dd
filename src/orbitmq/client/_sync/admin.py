"""Administration of a cluster: all of `Client.admin` in one place.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/admin.py: change that file and run `make generate`.
"""

from __future__ import annotations

from orbitmq.client._async import admin as source
from orbitmq.client._sync.group_admin import GroupAdmin
from orbitmq.client._sync.loop_thread import LoopThread


class Admin(GroupAdmin):
    """Administrative calls of a client; see `Client.admin`."""

    def __init__(self, twin: source.Admin, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.Admin = twin
