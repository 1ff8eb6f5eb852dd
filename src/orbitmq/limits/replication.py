"""Bounds of replication: frames and windows of the link, who counts as a copy, tickets, epochs."""

from __future__ import annotations

from typing import Final

# --- frames --------------------------------------------------------------------------------------------------------
TRANSFER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Head and body of one transfer: the receive buffer of RocketMQ's slave, which never gets beyond a larger one. A peer that sends one loses
its connection."""

TRANSFER_BATCH_BYTES: Final = 32 * 1024
"""Body of one transfer, unless set (`haTransferBatchSize`); RocketMQ's value. Only a single record may be larger."""

# --- the link ------------------------------------------------------------------------------------------------------
LINK_HEARTBEAT_MS: Final = 5_000
"""Pause after which either side writes although there is nothing new (`haSendHeartbeatInterval`); RocketMQ's value."""

LINK_SILENCE_MS: Final = 20_000
"""A peer from which nothing was read for so long is gone (`haHousekeepingInterval`): four heartbeats; RocketMQ's value."""

LINK_RECONNECT_MS: Final = 5_000
"""Longest pause of a slave before it connects again: a master that refuses it, or is not there, is asked no more often; RocketMQ's
value."""

LINK_RECONNECT_FIRST_MS: Final = 250
"""That pause after a connection that lasted: after an exchange of roles a name server knows the new master by then. Each failure doubles
it."""

LINK_WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Bytes sent to one slave and not acknowledged: 100 MiB/s at a round trip of 80 ms, and two of the largest transfers. What lies in
buffers of a slave that does not read is no more than this, but for a record that is larger: it is sent to its end."""

LINK_RATE_BYTES_PER_S: Final = 100 * 1024 * 1024
"""Bytes a second to one slave where the rate is limited (`haFlowControlEnable`); RocketMQ's value."""

LINK_UNAPPENDED_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes that a slave received and has not appended. Beyond it the socket is not read until the disk has taken some; what came of
a record that is not whole does not count."""

# --- who counts ----------------------------------------------------------------------------------------------------
COPY_TIMEOUT_MS: Final = 3_000
"""Time in which a copy has what was written (`slaveTimeout`), or counts no longer; RocketMQ's value."""

COPY_BEHIND_BYTES_MAX: Final = 256 * 1024 * 1024
"""A copy farther behind than this does not count (`haSlaveFallbehindMax`, `haMaxGapNotInSync`); RocketMQ's value."""

COPY_LEVEL_MS: Final = 200
"""A copy joins the count when it has what was written so long ago. From then on nothing is confirmed before it has it: so long, at most,
confirming stands still."""

LOG_AGE_STEP_MS: Final = 50
"""How finely it is remembered when the log ended where: a copy leaves the count at most so much too late."""

COPIES_MAX: Final = 16
"""Slaves of one master at a time; each is sent the whole log. A further one loses its connection."""

# --- tickets -------------------------------------------------------------------------------------------------------
TICKET_BYTES: Final = 32
"""Secret of a ticket: not to be guessed."""

TICKET_MS: Final = 30_000
"""Time from the issue of a ticket to its use: a slave connects with its next step, over TLS and a slow network."""

TICKETS_MAX: Final = 64
"""Tickets that wait to be used. Beyond it a slave is refused until others have been used or their time is over."""

TICKET_REQUEST_MS: Final = 3_000
"""A slave waits so long for the answer to its request, and asks again when it connects anew."""

MASTER_LIVES_MS: Final = 3_000
"""A slave that is to take over asks its master whether it lives, and waits so long for the answer: one that is stopped for longer is taken
for dead."""

DEMOTE_LEVEL_MS: Final = 3_000
"""A master that becomes a slave takes nothing, and waits so long for slaves to have what it has: as long as one may need that counts."""

HAND_OVER_CALL_MS: Final = 5_000
"""A slave that is made master by the one before has so long for its answer: it asks other slaves for where they are, and saves."""

HAND_OVER_ATTEMPTS: Final = 4
"""Times that slave is asked whether it leads while that is not known: with the pauses some 20 s, in which nobody does if it does not."""

HAND_OVER_PAUSE_MS: Final = 1_000
"""Between two of these times."""

KEPT_FILE_RETRY_MS: Final = 1_000
"""Pause before what is kept about copies is saved again, when that failed."""

FOLLOW_TAIL_BYTES: Final = 4_096
"""Of the end of a slave's log, which its master compares: several records, whose times and hosts are not those of another log."""

SLAVE_NAME_CHARS_MAX: Final = 128
"""Names in a request for a ticket: of the group, of the store, of its log and of the process; what it says of its disk too.
Broker names are not longer either."""

# --- damage --------------------------------------------------------------------------------------------------------
MEND_READ_BYTES: Final = 1024 * 1024
"""Of the log of another copy, asked for at a time to mend a damaged place: what one answer carries, and what a read holds in memory."""

MEND_RANGE_BYTES_MAX: Final = 32 * 1024 * 1024
"""A damaged place that is longer is not mended in place: it is held in memory until it was checked as a whole. Where so much is gone, the
file or the whole store comes from the other copy."""

MEND_BEFORE_BYTES: Final = 4_096
"""Of the bytes before a damaged place, which the other copy has to repeat: several records, whose times and hosts are not those of another
log."""

MEND_CALL_MS: Final = 10_000
"""Another copy may have to read its disk before it answers; one that needs longer is asked again later."""

MEND_AT_START_TRIES: Final = 20
"""A start that meets damage asks so often whether another copy answers: where all begin at the same time, the others are there within
seconds. A start that cannot be helped is late by this times the pause."""

MEND_AT_START_PAUSE_MS: Final = 500
"""Between them."""

MEND_PAUSE_MS: Final = 10_000
"""Pause before the other copies are asked again for what none of them gave."""

MEND_SHARE: Final = 20
"""Such a pause is at least so many times what asking took: places that nobody gives take a twentieth of the time, however many they are."""

MEND_PLACES_MAX: Final = 1_000
"""Damaged places that are remembered, and asked for again. Beyond it the rest of a file is taken for one place with the last."""

MEND_PLACES_SHOWN: Final = 8
"""Damaged places that are named in what a broker tells of itself; of more, only how many."""

WALK_SLICE_BYTES: Final = 1024 * 1024
"""Of the log, looked at in one step of a thread: a millisecond of it for the records, and what the disk takes."""

CHECK_STEP_MS: Final = 1_000
"""Between two steps of a broker with copies through its whole log, to find damage before somebody asks for it: one slice a second costs a
thousandth of a core, and a log of 100 GiB takes 28 hours."""

CHECK_PAUSE_MS: Final = 3_600_000
"""Between the end of such a pass and the next one: a small log is not read all the time."""

WALK_AGAIN_MS: Final = 60_000
"""A file that was walked is not walked again so soon for a place that somebody named before."""

WALKS_AGAIN_MAX: Final = 8
"""Other places in a file, named in that time, for which it is walked again: what became bad since is found, and a consume queue that is
wrong as a whole keeps the disk busy for no more than seconds of a minute."""

# --- epochs --------------------------------------------------------------------------------------------------------
EPOCH_MARKS_MAX: Final = 1_000
"""Epochs that are remembered, as many as a handshake of RocketMQ carries. The oldest goes when one more begins: where the log of another
agrees only before that, it is made anew."""

EPOCH_TEXT_BYTES_MAX: Final = 64 * 1024
"""A text of epochs: a thousand lines of two numbers. A longer one is none."""

SLAVE_LIVES_REMEMBERED_MAX: Final = 8
"""Processes that have followed as one slave, of which a master remembers that they were driven out: as many copies of one directory as
anybody starts by mistake."""

RESEED_LOG_FILES: Final = 1
"""Room that a slave has, beside what is set aside for a full disk, before its store is put aside, in files of its log: a start needs less,
and with none of the second log to come there is nothing to begin anew for."""

RESTART_AFTER_MS: Final = 100
"""After the answer to a command that makes the process begin again: by then it has left."""

# --- the port ------------------------------------------------------------------------------------------------------
SLAVE_CONNECTIONS_MAX: Final = 2 * COPIES_MAX
"""Connections at the port for slaves, strangers that have said nothing yet included. A further one is closed at once."""

SLAVE_LET_GO_MS: Final = 5_000
"""A slave that is let go because the log goes on with what cannot be read has so long to take what was written for it before."""

SLAVE_BATCHES_PER_PASS: Final = 16
"""Transfers to one slave in one pass of the loop, in one write: half a megabyte, less than a millisecond of the loop."""

# --- tables of a RocketMQ master -----------------------------------------------------------------------------------
TABLES_PERIOD_MS: Final = 10_000
"""Between two times a slave asks a master of RocketMQ for its tables, which are not in the log: as slaves of RocketMQ 4 do."""

TABLES_FIRST_MS: Final = 1_000
"""After the connection to a master has been made: by then one of ours has recorded its tables."""

TABLES_LOG_LOOK_MS: Final = 200
"""Between two looks whether the log has come as far as what a master said of its progress."""

TABLE_CALL_MS: Final = 10_000
"""For one table, of 10,000 topics or 100,000 offsets: a few megabytes. The frame that brings it has the bound of all frames."""
