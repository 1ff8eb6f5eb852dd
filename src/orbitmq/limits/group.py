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
