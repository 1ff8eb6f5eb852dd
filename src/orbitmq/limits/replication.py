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
"""Pause of a slave before it connects again: a master that refuses it, or is not there, is asked no more often; RocketMQ's value."""

LINK_WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Bytes sent to one slave and not acknowledged: 100 MiB/s at a round trip of 80 ms, and two of the largest transfers. What lies in
buffers of a slave that does not read is no more than this."""

LINK_RATE_BYTES_PER_S: Final = 100 * 1024 * 1024
"""Bytes a second to one slave where the rate is limited (`haFlowControlEnable`); RocketMQ's value."""

LINK_UNAPPENDED_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes that a slave received and has not appended. Beyond it the socket is not read until the disk has taken some."""

# --- tickets -------------------------------------------------------------------------------------------------------
TICKET_BYTES: Final = 32
"""Secret of a ticket: not to be guessed."""
