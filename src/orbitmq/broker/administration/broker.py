"""Requests about the broker itself: its settings (26, changed by 25), its state (28) the delay levels' offsets (45), its
slaves (907).

Rules of this file
1. The keys of the runtime information are RocketMQ's: its tools parse them without looking whether they are there.
   What has no counterpart here (thread pools, transient buffers) is reported as empty. What RocketMQ does not count
   stands under keys that begin with `orbitmq`.

Source: RocketMQ broker, statistics and runtime information; remoting, GET_BROKER_RUNTIME_INFO.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.pull import PullProcessor
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sends import Sends
from orbitmq.errors import OrbitError, ProtectedKeyError
from orbitmq.protocol.java_properties import format_properties
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.protocol.remoting.bodies import DataVersion, DelayOffsetTable, HaRuntimeInfo, KVTable
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.replication_bodies import (
    DemoteAnswer,
    DemoteRequest,
    FollowAnswer,
    FollowRequest,
    ForgetRequest,
    LogRangeRequest,
    PromoteAnswer,
    PromoteRequest,
    ReseedAnswer,
    ReseedRequest,
)
from orbitmq.protocol.remoting.versions import OUR_VERSION, version_name

Facts = Callable[[], Mapping[str, str]]


class BrokerAdminProcessor:
    def __init__(self, core: BrokerCore, sends: Sends, pulls: PullProcessor) -> None:
        self.level_offsets: Callable[[], Mapping[int, int]] = dict
        """Delivered offset of each delay level that is in use; set by the delivery service."""
        self.level_version: Callable[[], DataVersion] = DataVersion
        """Version of these offsets as last saved; set by the delivery service as well."""
        self.copies: Callable[[], HaRuntimeInfo] = lambda: HaRuntimeInfo(
            master_commit_log_max_offset=self._store.log.written_end
        )
        """Of replication; set by the server that has some."""
        self.issue_ticket: Callable[[FollowRequest, Callable[[FollowAnswer | OrbitError], None]], None] | None = None
        """Answers a slave that wants to follow, or tells why not; set by a server with a port for slaves."""
        self.make_master: Callable[[PromoteRequest, Callable[[PromoteAnswer | OrbitError], None]], None] | None = None
        """Makes this slave the master, and tells when it is, or why not; set by such a server as well."""
        self.make_slave: Callable[[DemoteRequest, Callable[[DemoteAnswer | OrbitError], None]], None] | None = None
        """Makes this master a slave, and tells when it is, or why not; set by such a server as well."""
        self.begin_anew: Callable[[ReseedRequest, Callable[[ReseedAnswer | OrbitError], None]], None] | None = None
        """Puts the store of a slave aside, which copies its master anew."""
        self.forget_slave: Callable[[int, Callable[[bool | OrbitError], None]], None] = lambda slave_id, done: done(
            False
        )
        """Lets another directory come with this id, and tells whether it was known. Set by such a server as well."""
        self.log_range: Callable[[LogRangeRequest, Callable[[bytes | OrbitError], None]], None] | None = None
        """Answers another copy of this log with bytes of it, or tells why not. Set by such a server as well."""
        self.room: Callable[[], tuple[int, int] | None] = lambda: None
        """Total and free bytes of the store's disk; None while nobody looked."""
        self.more_facts: list[Facts] = []
        """Further entries of the runtime information, of parts that this module does not know."""
        self._settings = core.settings
        self._topics = core.topics
        self._sends = sends
        self._pulls = pulls
        self._store = core.store
        self._clock = core.clock
        self._statistics = core.statistics
        self.present_settings = core.facilities.configuration or self._own_settings
        self._change_configuration = core.facilities.change_configuration
        self._disk_use = core.facilities.disk_use

    def configuration(self, command: Command, peer: Peer) -> Command:
        text = format_properties(sorted(self.present_settings().items()))
        version = msgspec.json.encode(self._topics.version).decode()
        return response(command, ResponseCode.SUCCESS, None, {"version": version}, text.encode())

    def change(self, command: Command, peer: Peer) -> Command:
        if self._change_configuration is None:
            raise Refusal(ResponseCode.NO_PERMISSION, "the settings of this broker are fixed; change them at its start")
        try:
            self._change_configuration(bytes(command.body))
        except ProtectedKeyError as error:
            raise Refusal(ResponseCode.NO_PERMISSION, str(error)) from error
        return response(command, ResponseCode.SUCCESS)

    def level_table(self, command: Command, peer: Peer) -> Command:
        """How far each delay level has been delivered, as slaves copy it."""
        body = DelayOffsetTable(
            offset_table=dict(sorted(self.level_offsets().items())), data_version=self.level_version()
        )
        return response(command, ResponseCode.SUCCESS, None, None, body.encode())

    def replicas(self, command: Command, peer: Peer) -> Command:
        """Which slaves copy this broker, and how far they are; or how far this slave is (907)."""
        return response(command, ResponseCode.SUCCESS, None, None, self.copies().encode())

    def follow(self, command: Command, peer: Peer) -> None:
        """FOLLOW_LOG: a slave asks for a ticket. Answered when it is on the disk who it is."""
        if self.issue_ticket is None or self._store.is_copy:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker takes no slaves: it is one itself")
        self.issue_ticket(FollowRequest.decode(command.body), partial(_tell, command, peer))

    def promote(self, command: Command, peer: Peer) -> None:
        """PROMOTE_SLAVE: this slave becomes the master. Answered when it takes messages."""
        wanted = PromoteRequest.decode(command.body)
        if self.make_master is None or not self._store.is_copy:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "this broker is no slave")
        self.make_master(wanted, partial(_tell, command, peer))

    def demote(self, command: Command, peer: Peer) -> None:
        """DEMOTE_MASTER: this master becomes a slave. Answered when it takes nothing any more, and it is known who leads."""
        wanted = DemoteRequest.decode(command.body)
        if self.make_slave is None or self._store.is_copy:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "this broker is no master")
        self.make_slave(wanted, partial(_tell, command, peer))

    def reseed(self, command: Command, peer: Peer) -> None:
        """RESEED_SLAVE: this slave begins with nothing. Answered when that is saved."""
        wanted = ReseedRequest.decode(command.body)
        if self.begin_anew is None or not self._store.is_copy:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                "this broker leads, and its log is the one that others copy (let another one lead first: orbitmq replica switch)",
            )
        self.begin_anew(wanted, partial(_tell, command, peer))

    def forget(self, command: Command, peer: Peer) -> None:
        """FORGET_SLAVE: another directory may come with the id of a slave."""
        wanted = ForgetRequest.decode(command.body)

        def done(known: bool | OrbitError) -> None:
            if known is False:
                remark = f"no slave {wanted.broker_id} has followed this broker"
                peer.send(response(command, ResponseCode.QUERY_NOT_FOUND, remark))
            else:
                _tell(command, peer, None if known is True else known)

        self.forget_slave(wanted.broker_id, done)

    def read_log(self, command: Command, peer: Peer) -> None:
        """READ_LOG: another copy of this log lacks some of it, which is damaged there. Answered when it was read."""
        if self.log_range is None:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker has no copies")
        self.log_range(LogRangeRequest.decode(command.body), partial(_tell, command, peer))

    def runtime(self, command: Command, peer: Peer) -> Command:
        body = KVTable(table=dict(sorted(self.runtime_facts().items()))).encode()
        return response(command, ResponseCode.SUCCESS, None, None, body)

    def runtime_facts(self) -> dict[str, str]:
        counted, store = self._statistics, self._store
        now_ms, now_ns = self._clock.now_ms(), self._clock.monotonic_ns()
        counted.settle(now_ns)
        mornings, latency = counted.mornings(now_ms), counted.put_latency
        put, got = str(counted.put.count), str(counted.got.count)
        facts = {
            "brokerVersion": str(OUR_VERSION),
            "brokerVersionDesc": version_name(OUR_VERSION),
            "brokerActive": "true",
            "bootTimestamp": str(counted.started_ms),
            "runtime": _duration(max(now_ms - counted.started_ms, 0) // 1000),
            "startAcceptSendRequestTimeStamp": str(self._settings.start_accept_send_request_timestamp),
            "msgPutTotalYesterdayMorning": str(mornings.put_yesterday),
            "msgPutTotalTodayMorning": str(mornings.put_today),
            "msgPutTotalTodayNow": put,
            "msgGetTotalYesterdayMorning": str(mornings.got_yesterday),
            "msgGetTotalTodayMorning": str(mornings.got_today),
            "msgGetTotalTodayNow": got,
            "putMessageTimesTotal": put,
            "putMessageFailedTimes": str(counted.put_failed_count),
            "putMessageSizeTotal": str(counted.put.size),
            "putMessageAverageSize": f"{counted.put.size / max(counted.put.count, 1):.1f}",
            "putMessageEntireTimeMax": str(latency.highest_ns // 1_000_000),
            "getMessageEntireTimeMax": "0",
            "putMessageDistributeTime": latency.distribution(),
            "putLatency99": f"{latency.percentile_ms(0.99, now_ns):.2f}",
            "putLatency999": f"{latency.percentile_ms(0.999, now_ns):.2f}",
            "pageCacheLockTimeMills": "0",
            "dispatchMaxBuffer": "0",
            "dispatchBehindBytes": str(store.log.written_end - store.confirm_offset),
            "commitLogMinOffset": str(store.log.start),
            "commitLogMaxOffset": str(store.log.written_end),
            "earliestMessageTimeStamp": str(store.earliest_store_time()),
            "remainHowManyDataToCommit": "0",
            "remainHowManyDataToFlush": _readable(store.unsynced_bytes),
            "remainTransientStoreBufferNumbs": "0",
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "0",
        }
        facts.update(counted.rates(now_ns))
        facts.update(self._waiting())
        facts.update(self._disks())
        for level, offset in sorted(self.level_offsets().items()):
            end = store.max_offset(SCHEDULE_TOPIC, level - 1)
            facts[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        for more in self.more_facts:
            facts.update(more())
        return facts

    def _own_settings(self) -> Mapping[str, str]:
        """The broker's settings under their names in camel case; a server gives its full list instead."""
        return {_camel(name): str(value) for name, value in msgspec.structs.asdict(self._settings).items()}

    def _waiting(self) -> dict[str, str]:
        """What stands where RocketMQ has thread pools with queues: sends waiting for their flush, pulls being held."""
        sizes = {
            "send": self._sends.unanswered_count,
            "pull": len(self._pulls.held),
            "query": 0,
            "litePull": 0,
            "ack": 0,
        }
        facts: dict[str, str] = {}
        for name, size in sizes.items():
            capacity = self._settings.send_thread_pool_queue_capacity if name == "send" else 0
            facts[f"{name}ThreadPoolQueueSize"] = str(size)
            facts[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
            facts[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return facts

    def _disks(self) -> dict[str, str]:
        shares = self._disk_use()
        highest = max(shares.values(), default=0.0)
        facts = {f"commitLogDiskRatio_{path}": f"{share:.4f}" for path, share in shares.items()}
        facts["commitLogDiskRatio"] = f"{highest:.4f}"
        facts["consumeQueueDiskRatio"] = f"{highest:.4f}"
        room = self.room()
        facts["commitLogDirCapacity"] = (
            "" if room is None else f"Total : {_readable(room[0])}, Free : {_readable(room[1])}."
        )
        return facts


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _readable(count: int) -> str:
    """Bytes as RocketMQ's tools print them: `812 B`, `5.3 KiB`, `252.0 GiB`."""
    if count < 1024:
        return f"{count} B"
    size, units = count / 1024, iter("KMGTPE")
    unit = next(units)
    while size >= 1024:
        size, unit = size / 1024, next(units)
    return f"{size:.1f} {unit}iB"


def _duration(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {rest} seconds ]"


def _tell(
    command: Command,
    peer: Peer,
    result: FollowAnswer | PromoteAnswer | DemoteAnswer | ReseedAnswer | bytes | OrbitError | None,
) -> None:
    if isinstance(result, OrbitError):
        peer.send(response(command, ResponseCode.NO_PERMISSION, str(result)))
    else:
        body = result if isinstance(result, bytes) else b"" if result is None else result.encode()
        peer.send(response(command, ResponseCode.SUCCESS, None, None, body))
