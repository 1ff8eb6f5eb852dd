"""Bounds of what is known about callers: users, the entries of their policies, and those who fail to prove who they are."""

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

POLICY_ENTRIES_LISTED_MAX: Final = 50_000
"""Entries in one answer: 6 MB, of the 16 MB that a frame may have. Making it holds everybody up for a fifth of a second."""

LISTED_BYTES_MAX: Final = 15_728_640
"""Bytes of one list of users or policies, of the 16 MB that a frame may have: long names and many addresses fill it before the entries
are as many as above."""

KEY_FILE_BYTES_MAX: Final = 65_536
"""Bytes of the file whose keys encrypt the table; one key is a line of 45."""

RESOURCE_NAME_CHARS_MAX: Final = 255
"""Characters of a resource's name in an entry; topics and groups have fewer."""

ENTRY_SOURCES_MAX: Final = 64
"""Addresses and networks of one entry: a request from elsewhere is compared with each of them."""

ENTRY_ACTIONS_MAX: Final = 64
"""Words of one entry for what may be done: there are eight of them, and some tools write one twice."""

ADDRESSES_READ_MAX: Final = 4_096
"""Addresses of callers kept as numbers, and sources of entries as networks; reading one more only costs some microseconds again."""

ACTIONS_READ_MAX: Final = 256
"""Sets of actions kept as words and as members: there are 128, and those of a large table are a few."""

JUDGED_BODY_BYTES_MAX: Final = 2_097_152
"""Body of a request whose names stand in it: ten thousand topics or acknowledgements. It is read before anybody has said that its sender
may do anything, a tenth of a second for each megabyte; a larger one is not let through."""

CALL_NEEDS_MAX: Final = 2_048
"""Topics and groups that one gRPC call may name, 2 us each to judge: settings of a client have up to 1,024 topics and a group, a send 1,024
messages. A call with more is not let through."""

FIELD_ORDERS_KEPT_MAX: Final = 256
"""Kinds of requests, by the names of their fields, whose order of signing is kept; a few dozen occur. One that is not kept is sorted."""

FIELD_ORDER_CHARS_MAX: Final = 1_024
"""Characters of the names of one such kind: those of RocketMQ's longest header fit three times."""

FAILURES_UNSLOWED_MAX: Final = 10
"""Failed signatures of one address within `FAILURES_WITHIN_MS` that are answered at once: a client with a wrong secret retries."""

FAILURES_WITHIN_MS: Final = 60_000
"""Failures this close together count together; after as long without one an address is like any other."""

FAILURE_WAIT_MS: Final = 100
"""How long the answer to the first failure beyond these waits; each further one waits twice as long."""

FAILURE_WAIT_MAX_MS: Final = 5_000
"""The longest wait, which leaves 17,280 guesses a day on one connection (and does nothing about many of them), and is within the time that
clients wait for an answer."""

FAILED_ADDRESSES_MAX: Final = 10_000
"""Addresses that have failed lately, 200 bytes each; of more the one that has not failed for longest starts anew."""

LATE_ANSWERS_MAX: Final = 10_000
"""Answers that wait because of failures, one for each connection; beyond them a connection that fails is closed."""

REFUSED_TOGETHER_MAX: Final = 64
"""Requests that a connection had sent behind one whose refusal waited, and that are refused with it: a program with a wrong password has
fewer under way. A connection with more is closed, or each of its requests would wait in turn long after their sender has gone."""

AUDIT_LINES_MAX: Final = 1_000
"""Lines of the audit log within LOG_WINDOW_MS; further ones are counted, and the count is reported. A program that administers a hundred
topics a second is the most that was seen; whoever may delete topics shall not fill the disk with lines instead."""

AUDIT_VALUE_CHARS_MAX: Final = 1_000
"""Characters of a name, an old or a new value in a line of the audit log: the settings of a group fit, which are some 600."""

AUDIT_LINE_CHARS_MAX: Final = 4_000
"""Characters of such a line, of a reset of a hundred queues for example; what is longer is cut, and says so."""

WORD_CHARS_SHOWN: Final = 64
"""Characters that an error shows of a word of a policy that means nothing: it goes back in the header of an answer."""
