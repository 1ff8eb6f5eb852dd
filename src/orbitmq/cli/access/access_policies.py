"""`orbitmq access policy`: what users may do: list, show, set, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from orbitmq.cli.access.access_users import UserArgument
from orbitmq.cli.asking.cluster_access import BrokerOption, ClusterOption, YesOption, run
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.joined_rows import joined
from orbitmq.cli.shared.output import note, show_done, show_rows
from orbitmq.errors import ConfigurationError

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.client.admin import AclInfo, Broker

RESOURCE_HELP: Final = "*, or Topic:NAME, Group:NAME, Cluster:NAME; NAME may end in *."

DefaultOption = Annotated[
    bool, typer.Option("--default", help="In the Default policy, which counts where no Custom entry applies.")
]
LIST_COLUMNS: Final = ("user", "policy", "resource", "actions", "sources", "decision", "brokers")

app = typer.Typer(
    help="Policies: list, show, set, delete.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@app.command("list", cls=ClusterCommand)
def list_policies(
    user: Annotated[
        str,
        typer.Option("--user", "-u", help="Only users whose subject (User:NAME) contains this.", show_default=False),
    ] = "",
    resource: Annotated[
        str, typer.Option("--resource", "-r", help="Only resources that contain this.", show_default=False)
    ] = "",
    broker: BrokerOption = None,
    cluster: ClusterOption = None,
) -> None:
    """List entries of policies, and which brokers have them."""

    async def work(client: Client) -> Mapping[str, list[AclInfo]]:
        return await client.admin.policies(user, resource, broker=broker, cluster=cluster)

    _show(run(work))


@app.command(cls=ClusterCommand)
def show(user: UserArgument, broker: BrokerOption = None, cluster: ClusterOption = None) -> None:
    """Show the entries of one user."""

    async def work(client: Client) -> Mapping[str, AclInfo | None]:
        return await client.admin.user_policies(user, broker=broker, cluster=cluster)

    found = {name: [acl] for name, acl in run(work).items() if acl is not None}
    if not found:
        note(f"user {user!r} has no policies")
        raise typer.Exit(ExitCode.NOT_FOUND)
    _show(found)


@app.command("set", cls=ClusterCommand)
def set_policies(
    user: UserArgument,
    resources: Annotated[list[str], typer.Argument(metavar="RESOURCE...", help=RESOURCE_HELP, show_default=False)],
    actions: Annotated[
        list[str],
        typer.Option("--actions", "-a", help="All, or Pub, Sub, Create, Update, Delete, Get, List; commas between."),
    ],
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from", help="Only from this address or network (10.1.0.0/16); commas between.", show_default=False
        ),
    ] = None,
    deny: Annotated[bool, typer.Option("--deny/--allow", help="What the entry decides.")] = False,
    default: DefaultOption = False,
    broker: BrokerOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Set what a user may do with resources. An entry about the same resource is replaced, others stay."""
    from orbitmq.access.policies import read_entry
    from orbitmq.client.admin import PolicyEntryInfo, PolicyInfo

    words, places, decision = _parts(actions), _parts(sources or []), "Deny" if deny else "Allow"
    entries = []
    for resource in _parts(resources):
        try:
            entry = read_entry(resource, words, places, decision)
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        entries.append(PolicyEntryInfo(entry.resource.text, words, places or None, decision))
    policy = PolicyInfo("Default" if default else "Custom", entries)

    async def work(client: Client) -> list[Broker]:
        return await client.admin.set_policies(user, [policy], broker=broker, cluster=cluster)

    names = [each.name for each in run(work)]
    what = [entry.resource for entry in entries]
    show_done(
        f"user {user}: {decision} {','.join(words)} on {', '.join(map(str, what))}, on {', '.join(names)}",
        {"user": user, "policy": policy.policy_type, "resources": what, "brokers": names},
    )


@app.command(cls=ClusterCommand)
def delete(
    user: UserArgument,
    resource: Annotated[
        str | None, typer.Argument(metavar="[RESOURCE]", help="Written as it is listed.", show_default=False)
    ] = None,
    default: DefaultOption = False,
    yes: YesOption = False,
    broker: BrokerOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Delete the entry about a resource, or all entries of a user."""
    if resource is None and not yes:
        typer.confirm(f"delete all policies of user {user}?", abort=True, err=True)

    async def work(client: Client) -> list[Broker]:
        return await client.admin.delete_policies(
            user, resource, policy_type="Default" if default else "Custom", broker=broker, cluster=cluster
        )

    names = [each.name for each in run(work)]
    show_done(
        f"user {user}: {resource or 'all policies'} deleted on {', '.join(names)}",
        {"user": user, "resource": resource, "brokers": names},
    )


def _parts(words: list[str]) -> list[str]:
    return [part.strip() for word in words for part in word.split(",") if part.strip()]


def _show(by_broker: Mapping[str, list[AclInfo]]) -> None:
    """A row per entry; in JSON the policies of a user as requests carry them, which `access import` takes."""
    if chosen_output() is Output.JSON:
        documents = {
            broker: [{"subject": acl.subject, "policies": acl.policies} for acl in acls]
            for broker, acls in by_broker.items()
        }
        show_rows(joined(documents), columns=LIST_COLUMNS)
    else:
        rows = joined({broker: [row for acl in acls for row in _rows(acl)] for broker, acls in by_broker.items()})
        show_rows(rows, columns=LIST_COLUMNS, empty="no policies")


def _rows(acl: AclInfo) -> list[dict[str, Any]]:
    return [
        {
            "user": (acl.subject or "").partition(":")[2],
            "policy": policy.policy_type,
            "resource": entry.resource,
            "actions": entry.actions,
            "sources": entry.source_ips,
            "decision": entry.decision,
        }
        for policy in acl.policies
        for entry in policy.entries
    ]
