"""Bounds of gRPC and of the HTTP/2 below it."""

from __future__ import annotations

from typing import Final

# --- header fields -------------------------------------------------------------------------------------------------
HEADER_TABLE_BYTES_MAX: Final = 4_096
"""Table of header fields that a peer may have us keep: the size of HTTP/2 itself, so no setting has to be sent. The fields of a signed call
take 1,500. A block that chooses more ends the connection."""

HEADER_LIST_BYTES_MAX: Final = 16_384
"""Header list of one call, 32 bytes for each field included; clients need less than 2,000, gRPC's own servers take 8,192 to 16,384. A
larger one is refused, the connection goes on."""

HEADER_INTEGER_BYTES_MAX: Final = 6
"""Bytes of a number in a header block, enough for 32 bits: a longer one is padded or has no use, and ends the connection."""

HEADER_BLOCK_BYTES_MAX: Final = 65_536
"""A header block as it travels: four times the list, as a string of rare characters takes almost four times its bytes in the Huffman code.
A larger one ends the connection (ENHANCE_YOUR_CALM): it would have to be read whole to keep the table in step."""

CONTINUATIONS_MAX: Final = 32
"""CONTINUATION frames of one header block; four carry the largest. More end the connection (ENHANCE_YOUR_CALM): frames without content
would never reach a bound in bytes."""

FIELD_NAME_LISTS_CACHED: Final = 256
"""Lists of field names whose rules were checked: one or two for each kind of call of each client release. Another one is checked anew."""

# --- connections -----------------------------------------------------------------------------------------------------
PREFACE_MS: Final = 10_000
"""Time from the beginning of a connection to its client's preface and settings, as for a TLS handshake: clients send them with their first
bytes. Who has not is closed when idle connections are next looked for."""

# --- frames and streams ----------------------------------------------------------------------------------------------
HTTP2_FRAME_BYTES_MAX: Final = 16_384
"""Payload of a frame that is read: the smallest value that HTTP/2 allows, as a frame is held until it is whole. A larger one ends the
connection (FRAME_SIZE_ERROR)."""

STREAMS_PER_CONNECTION_MAX: Final = 4_096
"""Calls of one connection at a time, 0.2 KB each: a client with a thousand queues waits with one call in each, and must still get its
acknowledgements through. One more is refused (REFUSED_STREAM), which clients repeat."""

STREAM_WINDOW_BYTES: Final = 1_048_576
"""What a client may send in a call before we open its window again, at the end of a turn: fills a line of 50 ms at 20 MB/s. More is reset
(FLOW_CONTROL_ERROR)."""

CONNECTION_WINDOW_BYTES: Final = 4_194_304
"""The same of all calls of a connection. More ends the connection."""

QUEUED_ANSWER_BYTES_MAX: Final = 67_108_864
"""Answers of one connection that wait for the client's windows: sixteen of the largest messages. The answer that does not fit is reset
(ENHANCE_YOUR_CALM, which clients show as RESOURCE_EXHAUSTED)."""

QUEUED_ANSWERS_BYTES_MAX: Final = 536_870_912
"""The same of all connections of a port."""

QUEUED_ANSWERS_SHARE: Final = 8
"""A connection may use one part in so many of what is free of that: one alone as much as it may have, a hundred that open no window some
5 MB each, and small answers of everybody else find room as long as there is any."""

STREAM_RESETS_MAX: Final = 5_000
"""Resets of a connection by its client, or by us because of what it sent, between two renewals of the budget: every call of a full
connection may be cancelled at once. One more ends the connection (ENHANCE_YOUR_CALM). A call that ends in order gives one back."""

IDLE_FRAMES_MAX: Final = 20_000
"""Frames without a request or content (PING, WINDOW_UPDATE, SETTINGS, PRIORITY, empty DATA, unknown types) between two renewals of the
budget, a microsecond each. One more ends the connection (ENHANCE_YOUR_CALM). Clients of gRPC send one or two PINGs and WINDOW_UPDATEs for
what they are sent, so answers give some back."""

SETTINGS_FRAME_COST: Final = 100
"""What a SETTINGS frame counts among them: it may set every answer in motion that waits. Clients send a few in a connection's life."""

IDLE_FRAMES_PER_ANSWER: Final = 8
"""Given back for a call that ended in order."""

ANSWER_BYTES_PER_IDLE_FRAME: Final = 1_024
"""Bytes of answers for which one is given back: who opens a window byte by byte gets almost nothing back."""

DROPPED_STREAMS_MAX: Final = 4_096
"""Streams that we reset and whose further frames are dropped because they were under way: as many as may be open. Of the oldest beyond it
a frame counts as one on a closed stream, and ends the connection."""

# --- calls ---------------------------------------------------------------------------------------------------------
QUEUED_CALLS_MAX: Final = 8
"""Calls of a connection in the queue of requests when that is needed; the others wait behind them, and nothing more is read. A receive of a
topic with eight queues takes 0.15 ms: forty clients with thousands of them keep a send of another one waiting for 50 ms."""

SEND_REQUEST_BYTES_MAX: Final = 130 * 1024 * 1024
"""Largest message of a send, as in RocketMQ's proxy; a larger one ends the call with RESOURCE_EXHAUSTED."""

SEND_READ_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest message of a send that is taken apart; one between these two is answered MESSAGE_BODY_TOO_LARGE, as any body above 4 MiB."""

REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
"""Largest message of every other call, with the end of the largest send. Two bytes can stand for a message of 70 in memory, so a request of
130 MB could take 4 GB; those of clients have some hundred bytes, settings with 1,000 topics 50 KB."""

SEND_MESSAGES_MAX: Final = 1_024
"""Messages of one send, which others wait for: 10 ms. More are answered BAD_REQUEST. Clients send one."""

SEND_KEYS_MAX: Final = 16_384
"""Keys of one send with several messages, 0.5 us each in the index, which others wait for: 8 ms. More are answered BAD_REQUEST. One
message has room for 8,192."""

STATUS_TEXT_CHARS_MAX: Final = 512
"""Characters of the text beside a gRPC status; a longer one is cut visibly. It travels in a header field, where a character may take
twelve bytes, and clients take fields of 8 KB."""

# --- messages ------------------------------------------------------------------------------------------------------
USER_PROPERTIES_MAX: Final = 128
"""User properties of a message, as in RocketMQ's proxy; more are answered MESSAGE_PROPERTIES_TOO_LARGE."""

USER_PROPERTIES_BYTES_MAX: Final = 16_384
"""Bytes of the names and values of user properties, of the tag and of the keys together, with the same answer: half of what a record has
for properties, so that those of the broker fit beside them."""

MESSAGE_GROUP_BYTES_MAX: Final = 63
"""Bytes of a message group, as in RocketMQ's proxy; a longer one is answered ILLEGAL_MESSAGE_GROUP."""

CONSUMER_GROUP_CHARS_MAX: Final = 120
"""Characters of a consumer group, as in RocketMQ's proxy: its dead-letter topic is an ordinary topic then. A longer one is answered
ILLEGAL_CONSUMER_GROUP."""

RECOVERY_SECONDS_MAX: Final = 3_600
"""Longest time before the first check of a transaction, as in RocketMQ's proxy; a longer one is answered BAD_REQUEST."""

NAMES_KEPT_MAX: Final = 1_024
"""Topic names whose check is remembered, 127 characters each at most, and as many names of groups: looking at one takes 2 us of a send, and
of an acknowledgement 3 us."""

STORE_HOSTS_KEPT_MAX: Final = 64
"""Addresses of brokers whose text is remembered: one, or a few in a store that came from elsewhere."""

MESSAGE_GROUPS_KEPT_MAX: Final = 4_096
"""Message groups whose queue is remembered, 63 bytes each at most; of more it is computed again, 2 us of a send."""

# --- routes ----------------------------------------------------------------------------------------------------------
RESOURCE_BYTES_MAX: Final = 512
"""Bytes of a topic with its namespace where every queue of an answer repeats them; a larger one is answered ILLEGAL_TOPIC."""

ROUTES_ANSWERED_AT_ONCE_MAX: Final = 8
"""Routes that are answered in one step when a name server has answered for many calls, 4 ms each for a topic with a thousand queues."""

ROUTES_KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Answers of routes that are kept to be sent again, with their keys: some hundred topics with a thousand queues each, or ten thousand with
eight. Another one is made anew."""

ROUTED_QUEUES_MAX: Final = 65_536
"""Queues of a topic on all brokers, 50 bytes and 4 us each in an answer; clients take answers of 4 MiB. A name server may say two billion.
More are answered INTERNAL_SERVER_ERROR."""

ROUTED_QUEUES_PER_BROKER_MIN: Final = 16
"""What a broker counts among them at least: to name it takes as long. So a route has at most 4,096 brokers."""

ENDPOINTS_BYTES_MAX: Final = 1_024
"""Bytes of the addresses that a client says it uses, which every queue of an answer repeats: some thirty addresses. More are answered
ILLEGAL_ACCESS_POINT."""

# --- clients -------------------------------------------------------------------------------------------------------
SESSIONS_MAX: Final = 20_000
"""Clients of gRPC that are known at a time, 2 KB each beside their settings: as many as connections of remoting and some. Another one's
settings end its stream with RESOURCE_EXHAUSTED."""

SESSIONS_SETTINGS_BYTES_MAX: Final = 256 * 1024 * 1024
"""Settings of all clients together, with `SETTINGS_PART_BYTES` for each part: 12 KB for each of as many clients as may be known, where
those of makers' clients have 200 bytes, three parts, and one for each topic. Settings that do not fit end their stream with
RESOURCE_EXHAUSTED."""

SETTINGS_PART_BYTES: Final = 512
"""What a topic, a delay or an address of a client's settings takes in memory, where it may have come in two bytes: a topic 450, with its
membership."""

SETTINGS_PARTS_MAX: Final = 1_280
"""Topics, delays and addresses of one client's settings. More end the stream with INVALID_ARGUMENT."""

SETTINGS_TOPICS_MAX: Final = 1_024
"""Topics of one client: each is a membership that every heartbeat renews, a microsecond each. More end the stream with
INVALID_ARGUMENT."""

SETTINGS_BYTES_MAX: Final = 262_144
"""Settings of one client: as many topics as it may have, with their longest names and some tags each. To take apart what a consumer
wants of them takes up to 40 ms. Larger ones end the stream with INVALID_ARGUMENT."""

COMMAND_FIELDS_MAX: Final = 4
"""Fields of a command of more bytes than settings have, and of its parts: clients answer with two or three. Only such answers may be
larger, as stacks of a thousand threads and messages that are sent back are: to take 4 MiB of many parts apart takes 50 ms. Another one ends
its stream with INVALID_ARGUMENT."""

CLIENT_VERSION_CHARS_MAX: Final = 64
"""Characters of a client's version that are kept; tools show it."""

# --- receives ------------------------------------------------------------------------------------------------------
REQUEST_TIMEOUT_MS: Final = 3_000
"""How long a client waits for an answer beyond what it polls, where it has not said so: what the makers' clients wait. A receive without a
deadline ends by it."""

ACK_ENTRIES_MAX: Final = 1_024
"""Entries of one AckMessage, which others wait for: 10 ms. More are answered BAD_REQUEST, and none is acknowledged. Clients send one, or
what one receive brought."""

FORWARDED_KEPT_MAX: Final = 1_024
"""Handles of dead letters that are remembered, 0.4 KB each: a client that lost the answer asks again within seconds. For one that is
forgotten the answer is INVALID_RECEIPT_HANDLE."""

RECEIVED_AT_ONCE_BYTES: Final = 65_536
"""Messages of one receive that are made and written together; then a reader that takes no more is waited for."""

HELD_OF_CLIENT_MAX: Final = 16_384
"""Messages of one push consumer that are renewed, 0.5 KB each: the makers' clients keep 1,024 to 4,096. Further ones are received and not
renewed, and counted."""

HELD_OF_ALL_MAX: Final = 200_000
"""The same of all clients: 100 MB."""

RENEWED_AT_ONCE_MAX: Final = 200
"""Messages that are renewed, or given back because their client has gone, in one step: about 5 ms."""

RENEWALS_MS: Final = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
"""For how long a message is hidden by its first, second, ... renewal, as in RocketMQ's proxy; the last counts for all that follow. A
consumer that dies within a few minutes leaves its messages to others soon."""
