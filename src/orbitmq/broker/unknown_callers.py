"""Requests about users and about accounts of RocketMQ 4, where a broker has none: refused, with the setting that would make it have some.

Rules of this file
1. Nothing of access control is imported: this is what a broker pays that asks nobody who they are.

(RocketMQ remoting, user and policy administration, 4.x ACL administration.)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from orbitmq.broker.room import RequestHandler, Room
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer

NO_USERS: Final = "this broker asks nobody who they are and has no users: start it with authenticationEnabled=true"
NO_ACCOUNTS: Final = "aclEnable is off: this broker keeps no accounts of RocketMQ 4"

PUT_FAILED: Final = ResponseCode.POLLING_FULL  # 209, which means so in answers to 50; the others likewise
DELETE_FAILED: Final = ResponseCode.POLLING_TIMEOUT
WHITE_FAILED: Final = ResponseCode.BROKER_NOT_EXIST


class NoUsers(Room):
    """Where authentication is off."""

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        codes = (code for code in RequestCode if code.name.startswith("AUTH_"))
        return dict.fromkeys(codes, partial(_refused, ResponseCode.SYSTEM_ERROR, NO_USERS))


class NoAccounts(Room):
    """Without aclEnable."""

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        failures = {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: PUT_FAILED,
            RequestCode.DELETE_ACL_CONFIG: DELETE_FAILED,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: WHITE_FAILED,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: ResponseCode.SYSTEM_ERROR,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: ResponseCode.SYSTEM_ERROR,
        }
        return {code: partial(_refused, failure, NO_ACCOUNTS) for code, failure in failures.items()}


def _refused(failure: ResponseCode, remark: str, command: Command, peer: Peer) -> Command:
    return response(command, failure, remark)
