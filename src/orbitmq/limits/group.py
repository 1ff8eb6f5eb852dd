"""Bounds of a replicated group: how long a member may be silent or late, who leads next, the engine."""

from __future__ import annotations

from typing import Final

GROUP_MEMBERS_MAX: Final = 7
"""Members of one group, learners too: each is sent the whole log, and all of the in-sync set are waited for."""

IN_SYNC_MIN: Final = 2
"""Members that have to have a record, the leader among them, in a group of three and more: one lost disk loses nothing."""

IN_SYNC_MIN_FROM: Final = 3
"""A group of so many members has another one when it has lost one. A pair goes on with one of two."""

MEMBER_LATE_MS: Final = 2_000
"""A member that was silent so long, or does not have what was written so long ago, is dropped from the set. Less than
`LEADER_SILENT_MS`: where one direction is cut the leader has dropped a member before that one wants to lead."""

MEMBER_LEVEL_MS: Final = 200
"""A member that has what was written so long ago has caught up: so long, at most, confirming stands still while it joins."""

LEADER_SILENT_MS: Final = 4_000
"""A leader of which nothing was heard for so long is missed. One whose connection is gone and refused is missed at once."""

LEAD_ASK_MS: Final = 300
"""Who misses its leader waits so long to hear where the logs of others end, unless all of the set have said it before."""

LEAD_STEP_MS: Final = 500
"""For each member that has a longer log a candidate waits so much more: that one goes first."""

GROUP_SAY_MS: Final = 500
"""Between two things that members say although nothing is new: heartbeats, a hello to who may lead, where a candidate stands."""

FOLLOW_SILENT_MS: Final = 1_500
"""A follower that heard nothing of its leader for so long says hello again: its session may be one that the leader does not know."""

ENGINE_ANSWER_MS: Final = 2_000
"""A question to the engine that was not answered within this is asked again; whether it acted is not known."""

ENGINE_RETRY_MS: Final = 500
"""Between two questions to the engine that come of the same wish."""

ENGINE_READ_MS: Final = 10_000
"""Between two reads of the engine although nothing seems to have changed: what its watch missed is found."""

UNCONFIRMED_MS: Final = 3_000
"""A send that is not confirmed within this is answered as unknown, as `slaveTimeout` of a pair."""

SWITCH_MS: Final = 5_000
"""A leader that was asked to let another one lead takes nothing for so long; then it goes on."""

CLOCK_OFF_MS: Final = 500
"""A member whose clock differs so much from its leader's leads last: what is due would move by that."""

CLOCK_OFF_LASTS_MS: Final = 3_000
"""A clock that was off for so long is reported: several heartbeats, of which one may be late."""

EPOCHS_SKIPPED: Final = 1_000
"""Between what a member has seen and what it begins in when the engine had forgotten that: more than were given unseen by it."""

# --- the link between members -----------------------------------------------------------------------------------------
MEMBER_FRAME_BYTES_MAX: Final = 4 * 1024 * 1024 + 64 * 1024
"""One frame: a piece of the log as long as the pair's longest, or the marks of a log, with what stands around them."""

MEMBER_HELLO_BYTES_MAX: Final = 4 * 1024
"""The first frame of a connection, whose sender is not known yet: seven names and a proof."""

MEMBER_HELLO_MS: Final = 5_000
"""A connection that has not said within this who is there is closed, and one that was not greeted."""

MEMBER_CONNECTIONS_MAX: Final = 4 * GROUP_MEMBERS_MAX
"""At the port for members, strangers that have said nothing yet included. A further one is closed at once."""

MEMBER_TOLD_MS: Final = 60_000
"""Who is turned away tries again for ever, each second: the log says so once within this."""

MEMBER_TOLD_MAX: Final = 64
"""Reasons that are remembered for that; the oldest go."""

MEMBER_MESSAGES_WAIT_MAX: Final = 32
"""Messages for a member that is being connected to; the oldest go. All of them are said again by whoever needs an answer."""

MEMBER_BUFFER_BYTES_MAX: Final = 16 * 1024 * 1024
"""Waiting to leave for one member that does not read: then its connection is closed."""

MEMBER_RETRY_FIRST_MS: Final = 100
"""Before another member is connected to again. Each failure doubles it."""

MEMBER_PROBE_MS: Final = 20
"""As above, in the second after a connection was lost, where the next one is neither refused nor greeted: its process may be ending."""

MEMBER_RETRY_MS: Final = 1_000
"""That pause at most: a member that comes back is reached within a second."""

GROUP_DISK_WAIT_MS: Final = 3_600_000
"""A member of a group does not answer for its disk alone (code 10): what is not confirmed within `UNCONFIRMED_MS` is unknown, whatever it
waits for. Longer than that."""

# --- the driver -------------------------------------------------------------------------------------------------------
GROUP_TICK_MS: Final = 100
"""Between two looks at the time: what is due is late by that at most."""

GROUP_KEEP_RETRY_MS: Final = 500
"""Before an epoch is written again, where that failed; nothing is said in it meanwhile."""

FOUNDING_WAIT_MS: Final = 2_000
"""A member without a log founds a group only when nobody has done so within this: one that has a log, and is started beside it, goes
first."""

JOINING_RETRY_MS: Final = 1_000
"""Before the engine is asked again by a member that is in no group yet."""

PLACES_READ_MS: Final = 5_000
"""Between two looks at where the other members are, although nothing seems to have changed."""

GROUP_LEAVE_MS: Final = 2_000
"""A leader that stops in order waits so long for another one to lead; a switch takes some tenths of a second."""

GROUP_SWITCH_ANSWER_MS: Final = 10_000
"""A person who asked for another leader hears within this what became of it: the switch itself gives up before."""
