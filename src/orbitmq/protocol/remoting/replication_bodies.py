"""Bodies of orbitmq's own requests about copies: a slave asks its master whether it may follow, and gets a ticket for the port for slaves;
a person makes a slave the master, or has it begin anew, and a master a slave.

Rules of this file
1. JSON members have the field's name in camel case.
2. A master of RocketMQ answers that it does not support the request: then its slave follows without a name.
"""

from __future__ import annotations

from orbitmq.protocol.remoting.bodies.json_body import Int64, JsonBody


class FollowRequest(JsonBody):
    """Body of FOLLOW_LOG: who wants to follow, and what log it has.

    `directory` is the id of the slave's directory, `log` that of the log in it; empty while it has none, or does not know. `end` is where
    that log ends, `epochs` who wrote it from where on (the text of `orbitmq.replication.epoch_marks`), empty where nothing is known.
    `tail_crc` is the CRC-32 of its last `tail_bytes` bytes. `process` is another text in each life of the slave's process. With `compares`
    it only asks what its log is to the master's, and gets no ticket.
    `address` is where the main port is reached. `is_damaged`: it has not all of that log, because its disk has lost some in the middle.
    `far` is the mark of the storage that it is configured to share for the far tier, `-` where that bears none, empty where it shares none.
    `trouble`: why its store takes nothing more, or no messages of its own where it led; for people.
    """

    broker_name: str
    broker_id: Int64
    directory: str
    log: str = ""
    end: Int64 = 0
    epochs: str = ""
    tail_bytes: Int64 = 0
    tail_crc: Int64 = 0
    process: str = ""
    compares: bool = False
    address: str = ""
    is_damaged: bool = False
    far: str = ""
    trouble: str = ""


class FollowAnswer(JsonBody):
    """Answer to FOLLOW_LOG: `ticket` (hexadecimal digits) is good once and for half a minute. `epochs` are the master's, whose log goes up
    to `end`. `far` is the mark of the storage that both share for the far tier, empty where they do not; a slave without a log is told as
    well which state of the master lies there for it, by store and number (0: none). To one that only compares: `relation` (see
    `orbitmq.replication.log_relation`) and `why`, for people."""

    ticket: str = ""
    epochs: str = ""
    end: Int64 = 0
    relation: str = ""
    why: str = ""
    far: str = ""
    far_store: str = ""
    far_serial: Int64 = 0


class PromoteRequest(JsonBody):
    """Body of PROMOTE_SLAVE, to the slave that becomes master. `synchronous`: as SYNC_MASTER. While it follows a master that lives it
    refuses, unless `although_master_lives`; while another slave of the group has more of the log, unless `although_behind`. Where the
    master itself asks, it says where its main port is, `former`: a request that comes late is refused when that one leads again."""

    synchronous: bool = False
    although_master_lives: bool = False
    although_behind: bool = False
    former: str = ""


class PromoteAnswer(JsonBody):
    """Answer to PROMOTE_SLAVE: the log went up to `end` when the slave became master, whose port for slaves is at `port_for_slaves`; empty
    where it has none."""

    end: Int64
    port_for_slaves: str = ""


class DemoteRequest(JsonBody):
    """Body of DEMOTE_MASTER, to the master that becomes a slave: as `broker_id`, 0 for the first one that is free. It follows the master
    whose main port is at `master` and its port for slaves at `port_for_slaves`; where these are empty, the one that a name server names.
    While no slave has its log it refuses, unless `although_behind`.

    With `hands_over` it makes a slave the master: `successor`, or for 0 the one that has most; where that fails it leads again."""

    broker_id: Int64 = 0
    master: str = ""
    port_for_slaves: str = ""
    hands_over: bool = False
    successor: Int64 = 0
    although_behind: bool = False


class DemoteAnswer(JsonBody):
    """Answer to DEMOTE_MASTER: this broker is slave `broker_id` now, its log went up to `end`. `master`: main port of the one that was made
    master; empty where none was."""

    broker_id: Int64
    end: Int64
    master: str = ""


class LogRangeRequest(JsonBody):
    """Body of READ_LOG, to a master or a slave with the same log: its bytes from `position` on, `size` of them. What asks has the log `log`
    confirmed up to `end`, written by `epochs`, as in `FollowRequest`. The answer's body is these bytes alone."""

    broker_name: str
    log: str
    end: Int64
    epochs: str
    position: Int64
    size: Int64


class ForgetRequest(JsonBody):
    """Body of FORGET_SLAVE, to the master: another directory may come with that id. A slave that follows goes on doing so."""

    broker_id: Int64


class ReseedRequest(JsonBody):
    """Body of RESEED_SLAVE, to the slave whose store is put aside, and which copies its master anew. Where it has what its master does not,
    it refuses, unless `although_parted`."""

    although_parted: bool = False


class ReseedAnswer(JsonBody):
    """Answer to RESEED_SLAVE: the store goes to the directory `aside`; now where `restarts`, else at the next start of the process."""

    aside: str
    restarts: bool
