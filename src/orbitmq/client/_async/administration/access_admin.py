"""Users of brokers that demand them, and their policies.

Rules of this file
1. Every broker has users of its own: a change is made on every master meant, one after the other, and the first failure says where.
2. A password stands in no error; in a result only as `UserInfo.password`, where the broker tells it.
"""

from __future__ import annotations

from orbitmq.client._async.administration.admin_calls import AdminCalls, Broker
from orbitmq.protocol.remoting.bodies import AclInfo, PolicyInfo, UserInfo, read_infos
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Buffer


class AccessAdmin(AdminCalls):
    """Calls about users and policies. What they change is in force when they return."""

    async def users(
        self, name_part: str = "", *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, list[UserInfo]]:
        """Users whose names contain `name_part`, by name of the broker. Our broker tells passwords to super users only."""
        fields = {"filter": name_part}
        answers = await self._ask_each(cluster, broker, RequestCode.AUTH_LIST_USER, fields, doing="listing users")
        return {answering.name: read_infos(UserInfo, body) for answering, body in answers.items()}

    async def user(
        self, name: str, *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, UserInfo | None]:
        """One user by name of the broker; None where it does not exist."""
        fields = {"username": name}
        answers = await self._ask_each(
            cluster, broker, RequestCode.AUTH_GET_USER, fields, doing=f"looking up user {name!r}"
        )
        return {answering.name: UserInfo.decode(body) if len(body) else None for answering, body in answers.items()}

    async def create_user(
        self,
        name: str,
        password: str,
        *,
        super_user: bool = False,
        enabled: bool = True,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Create a user; the brokers that have it now. A super user may do everything, and only a super user can create one. One that is
        not enabled is refused everything."""
        info = UserInfo(name, password, _type(super_user), None if enabled else "disable")
        code, doing = RequestCode.AUTH_CREATE_USER, f"creating user {name!r}"
        return list(await self._ask_each(cluster, broker, code, {"username": name}, info.encode(), doing=doing))

    async def update_user(
        self,
        name: str,
        *,
        password: str | None = None,
        super_user: bool | None = None,
        enabled: bool | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Change what is given of a user; the brokers that have changed it. One that is not enabled is refused everything."""
        status = None if enabled is None else "enable" if enabled else "disable"
        info = UserInfo(name, password, None if super_user is None else _type(super_user), status)
        code, doing = RequestCode.AUTH_UPDATE_USER, f"changing user {name!r}"
        return list(await self._ask_each(cluster, broker, code, {"username": name}, info.encode(), doing=doing))

    async def delete_user(self, name: str, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Delete a user with its policies; the brokers that were asked."""
        code, doing = RequestCode.AUTH_DELETE_USER, f"deleting user {name!r}"
        return list(await self._ask_each(cluster, broker, code, {"username": name}, doing=doing))

    async def policies(
        self, user_part: str = "", resource_part: str = "", *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, list[AclInfo]]:
        """Policies by name of the broker: of users whose subject (`User:name`) and about resources whose text contains a part."""
        fields = {"subjectFilter": user_part, "resourceFilter": resource_part}
        answers = await self._ask_each(cluster, broker, RequestCode.AUTH_LIST_ACL, fields, doing="listing policies")
        return {answering.name: read_infos(AclInfo, body) for answering, body in answers.items()}

    async def user_policies(
        self, user: str, *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, AclInfo | None]:
        """All policies of a user by name of the broker; None where it has none. A user that does not exist is an error."""
        code, doing = RequestCode.AUTH_GET_ACL, f"looking up policies of {user!r}"
        answers = await self._ask_each(cluster, broker, code, {"subject": _subject(user)}, doing=doing)
        return {answering.name: AclInfo.decode(body) if len(body) else None for answering, body in answers.items()}

    async def set_policies(
        self, user: str, policies: list[PolicyInfo], *, cluster: str | None = None, broker: str | None = None
    ) -> list[Broker]:
        """Add entries to the policies of a user; the brokers that have them now.

        An entry about a resource that has one in the same policy replaces it; others stay.
        """
        subject = _subject(user)
        body = AclInfo(subject, policies).encode()
        code, doing = RequestCode.AUTH_UPDATE_ACL, f"setting policies of {user!r}"
        return list(await self._ask_each(cluster, broker, code, {"subject": subject}, body, doing=doing))

    async def delete_policies(
        self,
        user: str,
        resource: str | None = None,
        *,
        policy_type: str = "Custom",
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Delete the entry about a resource from one policy of a user, without `resource` all of both; the brokers that were asked."""
        fields = {"subject": _subject(user), "policyType": policy_type}
        if resource is not None:
            fields["resource"] = resource
        code, doing = RequestCode.AUTH_DELETE_ACL, f"deleting policies of {user!r}"
        return list(await self._ask_each(cluster, broker, code, fields, doing=doing))

    async def _ask_each(
        self,
        cluster: str | None,
        broker: str | None,
        code: RequestCode,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        doing: str,
    ) -> dict[Broker, Buffer]:
        """Bodies of the answers of all masters meant."""
        answers = await self._ask_all(await self._targets(cluster, broker), code, fields, body, doing=doing)
        return {target: answer.body for target, answer in answers.items()}


def _subject(user: str) -> str:
    return f"User:{user}"


def _type(super_user: bool) -> str:
    return "Super" if super_user else "Normal"
