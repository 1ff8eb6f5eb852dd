"""Users of brokers that demand them, and their policies.

Rules of this file
1. Every broker has users of its own: a change is made on every master meant, one after the other, and the first failure says where.
2. A password stands in no error; in a result only as `UserInfo.password`, where the broker tells it.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/administration/access_admin.py: change that file and run `make generate`.
"""

from __future__ import annotations

from orbitmq.client._async.administration import access_admin as source
from orbitmq.client._async.administration.admin_calls import Broker
from orbitmq.client._sync.administration.admin_calls import AdminCalls
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.protocol.remoting.bodies import AclInfo, PolicyInfo, UserInfo


class AccessAdmin(AdminCalls):
    """Calls about users and policies. What they change is in force when they return."""

    def __init__(self, twin: source.AccessAdmin, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.AccessAdmin = twin

    def users(
        self, name_part: str = "", *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, list[UserInfo]]:
        """Users whose names contain `name_part`, by name of the broker. Our broker tells passwords to super users only."""
        return self._loop.run(self._twin.users(name_part, cluster=cluster, broker=broker))

    def user(self, name: str, *, cluster: str | None = None, broker: str | None = None) -> dict[str, UserInfo | None]:
        """One user by name of the broker; None where it does not exist."""
        return self._loop.run(self._twin.user(name, cluster=cluster, broker=broker))

    def create_user(
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
        not enabled is refused everything.
        """
        return self._loop.run(
            self._twin.create_user(
                name, password, super_user=super_user, enabled=enabled, cluster=cluster, broker=broker
            )
        )

    def update_user(
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
        return self._loop.run(
            self._twin.update_user(
                name, password=password, super_user=super_user, enabled=enabled, cluster=cluster, broker=broker
            )
        )

    def delete_user(self, name: str, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Delete a user with its policies; the brokers that were asked."""
        return self._loop.run(self._twin.delete_user(name, cluster=cluster, broker=broker))

    def policies(
        self, user_part: str = "", resource_part: str = "", *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, list[AclInfo]]:
        """Policies by name of the broker: of users whose subject (`User:name`) and about resources whose text contains a part."""
        return self._loop.run(self._twin.policies(user_part, resource_part, cluster=cluster, broker=broker))

    def user_policies(
        self, user: str, *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, AclInfo | None]:
        """All policies of a user by name of the broker; None where it has none. A user that does not exist is an error."""
        return self._loop.run(self._twin.user_policies(user, cluster=cluster, broker=broker))

    def set_policies(
        self, user: str, policies: list[PolicyInfo], *, cluster: str | None = None, broker: str | None = None
    ) -> list[Broker]:
        """Add entries to the policies of a user; the brokers that have them now.

        An entry about a resource that has one in the same policy replaces it; others stay.
        """
        return self._loop.run(self._twin.set_policies(user, policies, cluster=cluster, broker=broker))

    def delete_policies(
        self,
        user: str,
        resource: str | None = None,
        *,
        policy_type: str = "Custom",
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Delete the entry about a resource from one policy of a user, without `resource` all of both; the brokers that were asked."""
        return self._loop.run(
            self._twin.delete_policies(user, resource, policy_type=policy_type, cluster=cluster, broker=broker)
        )
