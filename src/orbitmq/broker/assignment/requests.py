"""Assignment by the broker: requests 400 to 402.

Rules of this file
1. An answer without assignments means "skip this round": the topic, the strategy or the group is unknown. An empty list means that the
   member has no queue.
2. A mode is saved before the answer that it is set.

Source: RocketMQ broker, server-side assignment; remoting, POP family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.access.audit import About, Subject
from orbitmq.broker.assignment.modes import FILE, RequestModeTable
from orbitmq.broker.assignment.routes import Queues, TopicRoutes
from orbitmq.broker.assignment.shares import ALLOCATIONS, pop_share, pull_share
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.refusal import Refusal, group_missing, topic_missing
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.limits.broker import REQUEST_MODES_MAX
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.remoting.bodies import (
    MessageModel,
    MessageQueueAssignment,
    MessageRequestMode,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    SetMessageRequestModeRequest,
)
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer

MODES: Final = "request modes"
"""Name of the table in the log, and of the wake-up that saves it again."""


class AssignmentRequests(Room):
    def __init__(self, core: BrokerCore) -> None:
        """Loads the modes. Raises `StoreDamagedError` for an unusable file."""
        self.routes: Final = TopicRoutes(core)
        self._core = core
        self.modes: Final = RequestModeTable(core.settings, core.facilities.tables(FILE), core.clock)
        self.modes.load()
        core.bind(self.modes)
        self._saving = core.make_saving((self.modes,), MODES)

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        code = RequestCode
        return {
            code.QUERY_ASSIGNMENT: self.query,
            code.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            code.GET_ALL_MESSAGE_REQUEST_MODE: self.all_modes,
        }

    def subjects(self) -> Mapping[RequestCode, Subject]:
        return {RequestCode.SET_MESSAGE_REQUEST_MODE: self._about}

    def _about(self, command: Command, peer: Peer) -> About:
        asked = SetMessageRequestModeRequest.decode(command.body)

        def state() -> dict[str, str]:
            mode = self.modes.recorded_value(f"{asked.topic}@{asked.consumer_group}")
            return {} if mode is None else {"mode": mode.decode()}

        return About(state, f"topic={asked.topic} group={asked.consumer_group}")

    def save(self) -> None:
        """The modes were changed without a request."""
        self._saving.begin()

    def close(self) -> None:
        self._saving.finish()
        self.modes.save()

    def query(self, command: Command, peer: Peer) -> Command | None:
        asked = QueryAssignmentRequest.decode(command.body)

        def took(queues: Queues | None) -> None:
            answer = response(command, ResponseCode.SUCCESS)
            answer.body = QueryAssignmentResponse(self._assigned(asked, queues)).encode()
            peer.send(answer)

        self.routes.readable(asked.topic, took)
        return None

    def _assigned(self, asked: QueryAssignmentRequest, queues: Queues | None) -> list[MessageQueueAssignment] | None:
        """The queues of one member; None when it is to skip this round."""
        if queues is None:
            return None
        mode, share_count = self.modes.of(asked.topic, asked.consumer_group)
        shared = asked.message_model is MessageModel.CLUSTERING and self._core.settings.server_load_balancer_enable
        if shared:
            group, allocate = self._core.clients.consumer(asked.consumer_group), ALLOCATIONS.get(asked.strategy_name)
            if group is None or allocate is None:
                return None
            members = group.client_ids()
            if mode is MessageRequestMode.POP:
                queues = pop_share(allocate, asked.client_id, members, queues, share_count)
            else:
                queues = pull_share(allocate, asked.client_id, members, queues)
        return [MessageQueueAssignment(message_queue=queue, mode=mode) for queue in queues]

    def set_mode(self, command: Command, peer: Peer) -> Command | None:
        mode = SetMessageRequestModeRequest.decode(command.body)
        if mode.topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.NO_PERMISSION, f"retry topics are always pulled, {mode.topic!r} too")
        if self._core.topics.get(mode.topic) is None:
            raise topic_missing(mode.topic)
        if self._core.groups.get(mode.consumer_group) is None:
            raise group_missing(mode.consumer_group)
        if not self.modes.put(mode):
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"there are {REQUEST_MODES_MAX} modes already, which is the limit")

        return self._saving.answer(command, peer, response(command, ResponseCode.SUCCESS), refuses=True)

    def all_modes(self, command: Command, peer: Peer) -> Command:
        return response(command, ResponseCode.SUCCESS, None, None, self.modes.all().encode())
