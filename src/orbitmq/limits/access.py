"""Bounds of what is known about callers: users, and the entries of their policies."""

from __future__ import annotations

from typing import Final

USERS_MAX: Final = 10_000
"""Users of one server. The table is one file that is written whole with every change: so many take 2 MB of it without their policies."""

USER_NAME_CHARS_MAX: Final = 255
"""Characters of a user's name, which travels with every request of that user and stands in every line about it."""

PASSWORD_CHARS_MAX: Final = 1_024
"""Characters of a password. It is a key of HMAC-SHA1: what is beyond 64 bytes adds nothing."""

POLICY_ENTRIES_PER_USER_MAX: Final = 1_000
"""Entries of one user's policies: an answer lists all of them."""

POLICY_ENTRIES_MAX: Final = 200_000
"""Entries of all users together: some 100 MB in memory, and a file of 30 MB that is written with every change."""

RESOURCE_NAME_CHARS_MAX: Final = 255
"""Characters of a resource's name in an entry; topics and groups have fewer."""

ENTRY_SOURCES_MAX: Final = 64
"""Addresses and networks of one entry: a request from elsewhere is compared with each of them."""

ADDRESSES_READ_MAX: Final = 4_096
"""Addresses of callers kept as numbers, for entries with sources; reading one takes a microsecond, which one more only costs again."""
