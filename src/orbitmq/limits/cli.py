"""Bounds of the command line."""

from __future__ import annotations

from typing import Final

# --- contexts ------------------------------------------------------------------------------------------------------
CLI_CONTEXTS_MAX: Final = 256
"""Named clusters in the user's file: a list that a person still reads."""

CLI_CONTEXT_FILE_BYTES_MAX: Final = 262_144
"""Largest file of contexts that is read: so many contexts with a kilobyte each."""

CLI_EXPECTED_BROKERS_MAX: Final = 1_024
"""Brokers that a context or a command may expect: more than a cluster of RocketMQ has."""

# --- users and policies ---------------------------------------------------------------------------------------------
ACCESS_FILE_BYTES_MAX: Final = 67_108_864
"""Largest file of users and policies that is imported: twice what all that a server keeps takes as JSON."""

# --- files of clusters ------------------------------------------------------------------------------------------------
CLUSTER_FILE_BYTES_MAX: Final = 67_108_864
"""Largest file of a cluster that is written and read: some hundred thousand topics, groups and offsets."""

CLUSTER_QUEUES_TOLD_MAX: Final = 8
"""Queues of which one row of an import says more than what became of them: what a line of a terminal holds."""

# --- benchmarks ----------------------------------------------------------------------------------------------------
BENCH_SAMPLES_MAX: Final = 5_000_000
"""Times that one run of a benchmark keeps, each a float: two minutes at full speed."""

BENCH_JOIN_S: Final = 30.0
"""How long the consumer of a delay run may take until it has queues."""

BENCH_CATCH_UP_S: Final = 10.0
"""How long a delay run waits while nothing comes, after the last message was due: what comes late still comes."""

BENCH_LOOK_S: Final = 0.05
"""Pause between two looks whether all have come."""

# --- waiting for a cluster -------------------------------------------------------------------------------------------
CLI_TIMEOUT_MS: Final = 5_000
"""Default time limit of a call, where neither the command nor its context says one."""

CLI_COMPLETION_MS: Final = 400
"""Time for all that is asked of a cluster while a user waits after pressing Tab."""

FAR_TIER_LOOK_S: Final = 0.5
"""How often a command that waits for the end of a work of the far tier asks how it stands."""

TAIL_HOLD_MS: Final = 15_000
"""How long the broker may hold a request of ours; what RocketMQ's push consumers use."""

TAIL_EMPTY_ANSWER_PAUSE_S: Final = 0.1
"""Pause after an answer without messages that came back at once (long polling switched off at the broker)."""

TAIL_RETRY_PAUSE_S: Final = 1.0
"""Pause before a broker that failed is asked again."""

TAIL_ROUTE_PAUSE_S: Final = 5.0
"""How often the name server is asked for new queues of a topic that is followed."""

# --- restarting a cluster --------------------------------------------------------------------------------------------
RESTART_LOOK_S: Final = 0.5
"""Pause between two looks at the cluster: every broker and name server is asked some small questions each time."""

RESTART_QUIET_MS: Final = 5_000
"""So long no send may have come to a broker that is stopped; programs that send more seldom have their routes' time to leave."""

RESTART_RIGHTS_MS: Final = 3_000
"""A broker that is back and not writable yet may register once more within this time; then it is given its permission."""

RESTART_TELL_MS: Final = 5_000
"""What is waited for is said this often at most."""

RESTART_MARK_S: Final = 5.0
"""The command writes this often at the name servers that it goes on; each has a small file to write then."""

RESTART_MARK_LOOKS: Final = 3
"""A mark that is the same after so many looks, each after that time, is of a command that was killed."""

RESTART_MARK_SETTLE_S: Final = 1.0
"""Whoever found no mark at the same moment has written its own by then."""

RESTART_COMMAND_CHARS_MAX: Final = 4_096
"""Longest command that restarts a broker."""

RESTART_NAMED_MAX: Final = 8
"""Topics that are named as having no other broker, and connections as sending still; of more the number is told."""

# --- doctor ----------------------------------------------------------------------------------------------------------
DOCTOR_FILES_MIN: Final = 1_024
"""Open files below which a machine is called unfit for a server."""

DOCTOR_ANSWER_TIMEOUT_S: Final = 2.0
"""Patience with a port of this machine: a server that runs answers in milliseconds."""

DOCTOR_READY_BYTES_MAX: Final = 65_536
"""Longest answer to `/readyz` that is read; ours has a hundred bytes for each reason."""

# --- output ----------------------------------------------------------------------------------------------------------
CLI_STRIP_SPANS_MAX: Final = 96
"""Characters of the strip that shows when timers fall due: a line of a terminal holds them."""
