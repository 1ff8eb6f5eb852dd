"""Administration of a cluster: all of `Client.admin` in one place.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/administration/admin.py: change that file and run `make generate`.
"""

from __future__ import annotations

from orbitmq.client._async.administration import admin as source
from orbitmq.client._async.administration.redrive import OnProgress
from orbitmq.client._sync.administration.access_admin import AccessAdmin
from orbitmq.client._sync.administration.group_admin import GroupAdmin
from orbitmq.client._sync.administration.group_views import GroupViews
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client.redrive import DeadLetters, RedriveResult


class Admin(GroupAdmin, GroupViews, AccessAdmin):
    """Administrative calls of a client; see `Client.admin`."""

    def __init__(self, twin: source.Admin, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.Admin = twin

    def redrive(
        self,
        group: str,
        selection: DeadLetters | None = None,
        *,
        to_topic: str | None = None,
        only_group: bool = False,
        rate: float | None = None,
        max_count: int | None = None,
        again: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> RedriveResult:
        """Send a group's dead letters again, as new messages to the topics they came from; the account of what was done.

        All groups of such a topic get them. selection: which ones; all without it. to_topic: another topic for all of them. only_group:
        through the group's retry topic instead, so that no other group gets them. rate: at most so many a second. max_count:
        end after so many. dry_run: only count. on_progress: called after each letter.

        The run covers what is there when it starts, and goes on where the last one with the same selection and topic ended; `again` begins
        at the oldest and sends also what was sent before. After an error the next run goes on, and our broker drops repeats.
        """
        return self._loop.run(
            self._twin.redrive(
                group,
                selection,
                to_topic=to_topic,
                only_group=only_group,
                rate=rate,
                max_count=max_count,
                again=again,
                dry_run=dry_run,
                on_progress=on_progress,
            )
        )
