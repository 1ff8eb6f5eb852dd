"""Bounds of the process around the roles: connections, loop turns, configuration, calls to other servers, watching."""

from __future__ import annotations

from typing import Final

from orbitmq.limits.broker import UNANSWERED_SENDS_MAX

# --- connections ---------------------------------------------------------------------------------------------------
CONNECTIONS_MAX: Final = 20_000
"""Accepted connections of one listener; each costs a file descriptor and a few kilobytes."""

DESCRIPTORS_MAX: Final = 1_048_576
"""To this the server raises its own limit of open files, where the system allows it; Linux's usual maximum."""

OPEN_FILES_MAX: Final = 32_768
"""Open and mapped files of the store at a time, where descriptors are plenty: half of the mappings that Linux lets a process have
(`vm.max_map_count`), though only a quarter of these files is mapped."""

CONNECTION_IDLE_MS: Final = 120_000
"""A connection without a byte in either direction for this long is closed; RocketMQ's value, clients rely on it."""

IDLE_SWEEP_MS: Final = 10_000
"""How often a listener with connections looks for idle ones: one timer for all of them."""

WRITE_HIGH_WATER_BYTES: Final = 1_048_576
"""Unsent bytes of a connection above which nothing more is read from it: four answers of the largest pull size."""

WRITE_LOW_WATER_BYTES: Final = 262_144
"""Unsent bytes below which a blocked connection is read again."""

UNSENT_PAUSE_BYTES: Final = 65_536
"""Bytes that a socket has not taken above which a connection gets nothing new: the kernel's buffer before it holds megabytes, which keep
a reader busy meanwhile."""

UNSENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""What waits to leave, of all connections of a listener. A connection may fill a sixteenth of what is left of it; where nothing is
left, each that takes its answers gets one at a time."""

UNSENT_SHARE: Final = 16
"""Part of the free room that one connection may fill: many readers that do not read leave room for those that do."""

WRITE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Unsent bytes of a connection at which it is cut: answers to requests that were accepted before it blocked fit."""

HELD_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of frames that have not arrived whole, and memory of requests whose senders take no answers, of all connections of
a listener: sixteen frames of the largest size, or 700,000 pulls."""

REQUESTS_TO_PEER_MAX: Final = 256
"""Requests of ours to one client that wait for its answer; RocketMQ allows 64 for a whole server."""

WAITING_REQUESTS_MAX: Final = UNANSWERED_SENDS_MAX
"""Requests that were read and wait to be handled, of all connections, together with sends that wait for their flush."""

WAITING_REQUESTS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Memory of the requests that wait to be handled: sixteen bodies of the largest size, or 10,000 of 4 KiB."""

TURN_SLICE_MS: Final = 20
"""How long a loop turn reads and handles before what it did is written and answered; under a flood reading and handling
take slices of this length in turn, so a small request waits for about two of them."""

READ_ROUND_BYTES: Final = 200_000
"""After a read of this size a connection waits until the others have been read: an event loop would otherwise empty one
socket (up to 8 MiB) before it looks at the next."""

LARGE_READ_BYTES: Final = 16_384
"""From this size on a read is large: to look at it takes about as long as to handle a small request, and half of a message is no hurry."""

LARGE_READS_AT_ONCE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of large reads that are looked at in one pass of the loop: 5 ms where each is a piece of a message, at some hundred MB/s."""

READ_PIECE_BYTES: Final = 32_768
"""Of a large read so much is looked at at a time: some 250 calls of gRPC, 20 ms with a hundred bytes each."""

REMOTING_PIECE_BYTES: Final = 65_536
"""The same where remoting is spoken, whose requests cost a tenth of that: what a client sends 32 messages of 1 KB with is one piece."""

HANDLED_AT_ONCE_MAX: Final = 64
"""Requests of one read that are handled without a look at the clock; more of them wait in the line."""

STOP_GRACE_MS: Final = 1_000
"""Time that connections get at an orderly stop to take the answers already written."""

LISTEN_BACKLOG: Final = 1_024
"""Connections the kernel may hold before they are accepted; RocketMQ's value."""

HANDSHAKE_MS: Final = 10_000
"""Time from the first byte of a TLS handshake or of a PROXY preamble to its last; Netty's value. Then the connection is cut."""

HANDSHAKE_YIELDS_MS: Final = 1_000
"""From so long on a handshake makes room where `HANDSHAKES_MAX` are under way. Honest ones take a few round trips: to keep them out
somebody has to begin a thousand connections a second, and not a hundred."""

HANDSHAKES_MAX: Final = 1_024
"""TLS handshakes and PROXY preambles under way at a time, at all ports; further ones are closed, if none makes room. Each holds some 50 KB,
200 KB at most, and a thousand take a core for a second with an RSA key: clients that are told to come back all at once still get in."""

PROXY_LINE_BYTES_MAX: Final = 107
"""Longest first line of the PROXY protocol's version 1, with its end; a longer one is refused. The protocol's own bound."""

PROXY_HEADER_BYTES_MAX: Final = 4_096
"""Longest header of the PROXY protocol's version 2; a longer one is refused. Proxies add some hundred bytes to the addresses."""

CERTIFICATE_LOOK_MS: Final = 5_000
"""How often the files of the certificate are compared with what was read: three questions to the file system each time."""

CERTIFICATE_BYTES_MAX: Final = 1_048_576
"""Largest file of a certificate, a key or trusted certificates; a larger one is refused. All public roots together are a quarter."""

CERTIFICATE_EXPIRY_NOTICE_MS: Final = 7 * 24 * 3_600_000
"""From so long before its end on, a certificate's expiry is reported in the log once a day."""

# --- calls to other servers ----------------------------------------------------------------------------------------
OUTBOUND_CONNECT_MS: Final = 3_000
"""Time for a TCP connection to a name server or broker; RocketMQ's value."""

OUTBOUND_CALLS_MAX: Final = 1_024
"""Calls that wait for an answer on one connection to another server."""

OUTBOUND_ADDRESSES_MAX: Final = 256
"""Connections kept for notices; the oldest is closed for a new one."""

OUTBOUND_PAUSE_FIRST_MS: Final = 250
"""Pause after the first failed attempt to connect."""

OUTBOUND_PAUSE_LAST_MS: Final = 10_000
"""The doubling pause ends here: a name server that comes back is found within ten seconds."""

REGISTRATION_TIMEOUT_MS: Final = 24_000
"""Time for one registration; RocketMQ's value."""

ROUTE_TIMEOUT_MS: Final = 1_000
"""Time for the question where a topic is; clients that ask a broker for their queues wait 3 s for it."""

REGISTRATION_PERIOD_MS_MIN: Final = 10_000
"""Lower end of the range below: more often only costs."""

REGISTRATION_PERIOD_MS_MAX: Final = 60_000
"""`registerNameServerPeriod` is taken into this range, as RocketMQ does: half of what a name server waits at most."""

REGISTRATION_RETRY_FIRST_MS: Final = 500
"""Pause after a failed registration; it doubles up to OUTBOUND_PAUSE_LAST_MS."""

ENDPOINT_TIMEOUT_MS: Final = 1_000
"""Time for a look at, or a change of, the entry that says where a broker serves gRPC; it is tried again with the next registration."""

UNREGISTER_TIMEOUT_MS: Final = 1_000
"""Time for the farewell at an orderly stop; a name server notices a closed connection anyhow."""

# --- configuration -------------------------------------------------------------------------------------------------
CONFIG_FILE_BYTES_MAX: Final = 1_048_576
"""Largest configuration file that is read; RocketMQ's longest examples are a few kilobytes."""

CONFIG_UPDATE_BYTES_MAX: Final = 65_536
"""Largest body of a request that changes the configuration: every key of a broker fits several times."""

# --- watching ------------------------------------------------------------------------------------------------------
METRIC_SERIES_MAX: Final = 2_000
"""Series of one metric whose labels hold topics or groups; further ones share `(others)`. About 4 MB of text when all
metrics are full, which takes 40 slices to write."""

SCRAPE_SLICE_MS: Final = 2
"""How long a scrape may hold the loop before it lets requests through."""

SCRAPE_PAUSE_MS: Final = 100
"""Scrapes begin at most this often; who asks earlier gets the answer of the next one. Monitoring asks every few seconds,
a loop of requests must not take the loop's time."""

LAG_QUEUES_WITHOUT_MEMBERS_MAX: Final = 20_000
"""Message queues of groups without members at which one scrape looks: 0.2 s, in slices. A thousand groups that somebody left behind on
topics of 16 queues are 16,000; what comes beyond is counted."""

SCRAPE_COLD_READS_MAX: Final = 2_000
"""Old records of which one scrape reads the store time, to tell how long a group is behind."""

SCRAPE_COLD_WAIT_MS: Final = 1_000
"""How long a scrape waits for them; a disk that hangs must not hide the metrics that tell so."""

HTTP_CONNECTIONS_MAX: Final = 64
"""Connections to the HTTP port: a few monitoring systems and probes, and nobody else."""

HTTP_REQUEST_BYTES_MAX: Final = 16_384
"""Request line and headers; ours are a few hundred bytes. Bodies are not taken at all."""

HTTP_REQUEST_MS: Final = 5_000
"""Time from the first byte of a request to its last; slower clients are cut."""

HTTP_ANSWER_MS: Final = 10_000
"""Time a client gets to take an answer."""

HTTP_IDLE_MS: Final = 120_000
"""A connection without a request for this long is closed; monitoring systems keep theirs between scrapes."""

PROXY_FILE_BYTES_MAX: Final = 1_048_576
"""Longest `rmq-proxy.json` that is read at the start; a proxy's has some kilobytes. A longer one stops the start."""

HTTP_LATE_ANSWERS_MAX: Final = 16
"""Answers to wrong passwords that wait at a time; each holds one of HTTP_CONNECTIONS_MAX. Further ones are told to come later at once."""

LOG_REPEATS_MAX: Final = 100
"""Default of `logRepeatsMax`: log lines of one wording within LOG_WINDOW_MS; further ones are counted and the count is reported.
Peers can cause lines, and a million of them must not fill the disk that the log shares with the store."""

LOG_WINDOW_MS: Final = 10_000
"""The time over which LOG_REPEATS_MAX counts."""

LOG_WORDINGS_MAX: Final = 1_024
"""Wordings that are counted apart; the source has some 200. Beyond it all further ones count as one."""

LOOP_STALL_MS: Final = 250
"""A loop turn, or a timer's delay, of this length is a stall: it is counted, and reported in the log."""

OUTPUT_JOIN_BYTES_MAX: Final = 16_384
"""Parts up to this size (on average) are joined with their neighbours before writing: a copy costs less than a place in
a write vector."""

REGISTRATION_WAIT_MS: Final = 2_000
"""How long the start waits for name servers; those that are down are tried again in the background."""

FILES_MIN: Final = 128
"""Descriptors kept for files, pipes and the event loop, however few there are."""

ANNOUNCEMENT_WAIT_MS: Final = 2_000
"""How long the answer to a change of a topic waits for name servers; below the patience of every client."""
