"""Records of tables let their files go on a full disk, and are written again when there is room.

A file of the log stays until the last words in it were said again, which needs room. On a full disk nothing could go then, and it would
stay full. So one small record for each table says that the file of the table counts; with it nothing keeps the log.

Rules of this file
1. That record is written into what is set aside. A copy that follows keeps what it knows.
2. When there is room, everything is recorded again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.limits.broker import TABLE_RETRY_NS

if TYPE_CHECKING:
    from orbitmq.store.store import MessageStore

logger = logging.getLogger("orbitmq.broker")


class FullDisk:
    """`records_again`: the log was made to forget the tables, and is to know them when there is room."""

    def __init__(
        self, follow: Callable[[bool], None], drop: Callable[[], None], wake_within: Callable[[int], None]
    ) -> None:
        """`follow(is_followed)` is `TableRecords.copy_follows`; `drop()` appends what says that the log forgets tables; `wake_within(ns)`
        has `look` called."""
        self._wake_within = wake_within
        self._follow = follow
        self._drop = drop
        self.records_again = False

    def not_recorded(self, store: MessageStore, is_followed: bool) -> None:
        """What keeps files could not be recorded anew. Where that is for lack of room, the log is to forget the tables."""
        if not (store.lacks_room and is_followed):
            return
        logger.warning(
            "the disk is full: the files of the tables count, and their records go, until there is room to record them again"
        )
        self._follow(False)
        self.records_again = True
        self._drop_now(store)

    def _drop_now(self, store: MessageStore) -> None:
        try:
            store.append_in_last_space(self._drop)
        except (StoreUnwritableError, RecordError) as error:
            logger.debug("that the files of the tables count is not recorded yet: %s", error)
        store.commit()
        self._wake_within(TABLE_RETRY_NS)

    def look(self, store: MessageStore, is_followed: bool, *, drops: bool, is_busy: bool) -> None:
        """Is there room by now? `drops`: what says that the log forgets tables is not recorded yet; `is_busy`: or not confirmed."""
        self.records_again = self.records_again and not is_followed  # a slave has come, and everything is recorded
        if not self.records_again:
            return
        if store.writes_accepted and not (drops or is_busy):
            self.records_again = False
            self._follow(True)
            logger.warning("tables are recorded again")
        elif drops and store.lacks_room:
            self._drop_now(store)
        else:
            self._wake_within(TABLE_RETRY_NS)
