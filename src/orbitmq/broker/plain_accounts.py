"""Accounts of RocketMQ 4 while the broker runs: 50 and 51 change one, 53 the global white list, 52 and 54 tell versions and accounts.

Rules of this file
1. An answer leaves when the file is written and in force. A change whose file could not be read afterwards is refused and changes nothing.
2. What a request changes, who asked for it and from where is one line of the log. No secret key stands in it, nor in a remark.
3. Files are read and written on the worker, one change after another.

(RocketMQ remoting: 4.x ACL administration.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from orbitmq.access.audit import caller_text, tell
from orbitmq.access.plain.accounts import PlainAccount, PlainPermission
from orbitmq.access.plain.changes import Tree, with_account, with_white_addresses, without_account
from orbitmq.access.plain.table import AccountFiles, PlainTable
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.unknown_callers import DELETE_FAILED, PUT_FAILED, WHITE_FAILED
from orbitmq.errors import OrbitError
from orbitmq.protocol.ids import host_text
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer

_COMMA_OUTSIDE_BRACES: Final = re.compile(r",(?![^{]*\})")


class PlainAccounts(Room):
    def __init__(self, core: BrokerCore, files: AccountFiles) -> None:
        self._files = files
        self._worker = core.facilities.worker
        self._settings = core.settings
        self._store_host = core.facilities.store_host

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.put,
            RequestCode.DELETE_ACL_CONFIG: self.delete,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.put_white_addresses,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.tell_versions,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.tell_accounts,
        }

    def put(self, command: Command, peer: Peer) -> Command | None:
        """Create an account, or change the members of one that are given."""
        key = command.text("accessKey")
        members: Tree = {"accessKey": key, "secretKey": command.text("secretKey")}
        for member in ("whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm"):
            if (given := command.fields.get(member)) is not None and (given or member == "whiteRemoteAddress"):
                members[member] = given
        members["admin"] = command.boolean("admin")
        for member in ("topicPerms", "groupPerms"):
            if permissions := command.text(member):
                members[member] = [permission.strip() for permission in permissions.split(",")]
        failure = PUT_FAILED
        return self._change(command, peer, failure, self._file_of(key), lambda tree: with_account(tree, members))

    def delete(self, command: Command, peer: Peer) -> Command | None:
        key = command.text("accessKey")
        failure = DELETE_FAILED
        if key not in self._files.table.accounts:
            return response(
                command, failure, f"The accessKey[{key[:64]}] corresponding to accessConfig has been deleted failed."
            )
        return self._change(command, peer, failure, self._file_of(key), lambda tree: without_account(tree, key))

    def put_white_addresses(self, command: Command, peer: Peer) -> Command | None:
        """Replace the global white list of a file, the default one where none is named."""
        failure = WHITE_FAILED
        file = command.text("aclFileFullPath") or self._files.default_file
        if file != self._files.default_file and file not in {known.name for known in self._files.table.files}:
            return response(command, failure, f"{file!r} is none of the files of accounts; 52 tells their paths")
        text = command.text("globalWhiteAddrs")
        patterns = [pattern.strip() for pattern in _COMMA_OUTSIDE_BRACES.split(text)] if text else []
        return self._change(command, peer, failure, file, lambda tree: with_white_addresses(tree, patterns))

    def tell_versions(self, command: Command, peer: Peer) -> Command:
        """How often each file was changed by requests, and when last."""
        versions = {
            file.name: {"counter": file.version.counter, "timestamp": file.version.timestamp_ms}
            for file in self._files.table.files
        }
        fields = {
            "version": json.dumps(versions.get(self._files.default_file, {"counter": 0, "timestamp": 0})),
            "allAclFileVersion": json.dumps(versions),
            "brokerName": self._settings.broker_name,
            "brokerAddr": host_text(self._store_host),
            "clusterName": self._settings.broker_cluster_name,
        }
        return response(command, ResponseCode.SUCCESS, None, fields)

    def tell_accounts(self, command: Command, peer: Peer) -> Command:
        """All accounts with their secret keys, and the white lists of all files."""
        table = self._files.table
        body = {
            "globalWhiteAddrs": [pattern.text for file in table.files for pattern in file.white_addresses],
            "plainAccessConfigs": [_shown(account) for account in table.accounts.values()],
        }
        return response(command, ResponseCode.SUCCESS, None, None, msgspec.json.encode(body))

    def _file_of(self, access_key: str) -> str:
        return self._files.table.file_of.get(access_key, self._files.default_file)

    def _change(
        self, command: Command, peer: Peer, failure: ResponseCode, file: str, change: Callable[[Tree], Tree]
    ) -> Command | None:
        """Have a file changed; the answer comes when that is so."""
        files = self._files
        caller = caller_text(peer)
        event = RequestCode(command.code).name

        def done(result: PlainTable | BaseException) -> None:
            if isinstance(result, PlainTable):
                files.table = result
                tell(caller, event, f"{event} accessKey={command.text('accessKey')[:64]} in {file}")
                answer = response(command, ResponseCode.SUCCESS)
            else:
                known = isinstance(result, ValueError | OSError | OrbitError)
                answer = response(command, failure, str(result) if known else type(result).__name__)
            if not command.is_oneway:
                peer.send(answer)

        self._worker.submit(lambda: files.change(file, change), done)
        return None


def _shown(account: PlainAccount) -> dict[str, object]:
    """An account as RocketMQ writes it into bodies."""
    return {
        "accessKey": account.access_key,
        "secretKey": account.secret_key,
        "whiteRemoteAddress": account.white_addresses.text,
        "admin": account.admin,
        "defaultTopicPerm": account.default_topic.text,
        "defaultGroupPerm": account.default_group.text,
        "topicPerms": _written(account.topics),
        "groupPerms": _written(account.groups),
    }


def _written(permissions: Mapping[str, PlainPermission]) -> list[str]:
    return [f"{name}={permission.text}" for name, permission in permissions.items()]
