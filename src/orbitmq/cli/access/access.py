"""`orbitmq access`: users and policies, why a call is allowed or denied, and what comes from elsewhere."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from orbitmq.cli.access import access_policies, access_users
from orbitmq.cli.access.access_policies import RESOURCE_HELP
from orbitmq.cli.access.access_users import UserArgument
from orbitmq.cli.asking.cluster_access import BrokerOption, ClusterOption, run
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.output import note, show_rows
from orbitmq.errors import ConfigurationError

if TYPE_CHECKING:
    from orbitmq.access.needed import Needed
    from orbitmq.client import Client
    from orbitmq.client.admin import AclInfo, Broker, UserInfo

EXPLAIN_COLUMNS: Final = ("broker", "needs", "result", "because")

app = typer.Typer(
    help="Users and policies: who may do what, and why.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
app.add_typer(access_users.app, name="user")
app.add_typer(access_policies.app, name="policy")


class _OnBroker(NamedTuple):
    """What a broker says about a user. None: it has none, or none of them has policies."""

    broker: Broker
    user: UserInfo | None
    policies: AclInfo | None


@app.command(cls=ClusterCommand)
def explain(
    user: UserArgument,
    action: Annotated[
        str | None,
        typer.Argument(metavar="[ACTION]", help="Pub, Sub, Create, ...; | between: one is enough.", show_default=False),
    ] = None,
    resource: Annotated[
        str | None,
        typer.Argument(metavar="[RESOURCE]", help="Topic:NAME, Group:NAME, Cluster:NAME.", show_default=False),
    ] = None,
    request: Annotated[
        str | None,
        typer.Option("--request", help="A request, by code or name, instead of an action.", show_default=False),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="What the request names.", show_default=False)
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="What the request names.", show_default=False)
    ] = None,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="ADDRESS",
            help="Where the caller is; else entries that allow from some places do not apply, and those that deny do.",
        ),
    ] = "",
    broker: BrokerOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Say whether a user may do something, and which entry allows or denies it. Exit code 1: denied on some broker.

    `orbitmq access explain alice Pub Topic:orders`, `orbitmq access explain alice --request PULL_MESSAGE -t orders -g shop`.
    """
    if (request is None) == (action is None or resource is None):
        raise ConfigurationError("say what: ACTION and RESOURCE, or --request", remedy="orbitmq access explain --help")

    async def work(client: Client) -> list[_OnBroker]:
        users = await client.admin.user(user, broker=broker, cluster=cluster)
        masters = [master for master in await client.admin.masters(cluster) if master.name in users]
        found = []
        for master in masters:
            known = users[master.name]
            policies = None
            if known is not None:
                policies = (await client.admin.user_policies(user, broker=master.name, cluster=cluster))[master.name]
            found.append(_OnBroker(master, known, policies))
        return found

    rows: list[dict[str, Any]] = []
    for known in run(work):
        if request is None:
            needs = [_asked(str(action), str(resource))]
        else:
            needs = _needs(request, {"Topic": topic, "Group": group, "Cluster": known.broker.cluster})
        rows += _judged(known, needs, source)
    show_rows(rows, columns=EXPLAIN_COLUMNS)
    if any(row["result"] == "denied" for row in rows):
        raise typer.Exit(ExitCode.FAILED)


def _check_address(text: str) -> None:
    """Entries with sources compare addresses: another text fits every one of them that denies. Empty: none is given."""
    try:
        ipaddress.ip_address(text.partition("%")[0] or "::")
    except ValueError:
        raise ConfigurationError(f"--from {text!r} is no address", remedy="give one, such as 10.0.0.7") from None


def _asked(action: str, resource: str) -> Needed:
    from orbitmq.access.needed import Needed
    from orbitmq.access.policies import Match, read_actions, read_resource

    try:
        pattern, actions = read_resource(resource), read_actions(action.split("|"))
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    if pattern.type is None or pattern.match is Match.PREFIX:
        raise ConfigurationError(f"{resource!r} is no single resource", remedy=f"write one of {RESOURCE_HELP}")
    return _need(Needed(pattern.type, None if pattern.match is Match.ALL else pattern.name, actions))


def _need(needed: Needed) -> Needed:
    """What a broker asks about."""
    from orbitmq.access.needed import judged_as

    asked = judged_as(needed)
    if asked.name == "":
        raise ConfigurationError(f"{needed.name} is a topic of no group: a broker refuses that")
    return asked


def _needs(request: str, names: Mapping[str, str | None]) -> list[Needed]:
    """What a request needs that names these."""
    from orbitmq.access.needed import Needed
    from orbitmq.protocol.remoting.codes import RequestCode
    from orbitmq.protocol.remoting.requests import REQUESTS, NamedBy

    try:
        code = RequestCode(int(request)) if request.isdecimal() else RequestCode[request.upper()]
    except (KeyError, ValueError):
        raise ConfigurationError(f"there is no request {request!r}", remedy="see: orbitmq protocol codes") from None
    needs = []
    for need in REQUESTS[code].needs:
        name = names[need.resource.value]
        if need.named_by is NamedBy.ALL:
            needs.append(Needed(need.resource, None, need.actions))
        elif name:
            needs.append(_need(Needed(need.resource, name, need.actions)))
        elif not need.optional:
            word = need.resource.value.lower()
            raise ConfigurationError(f"{code.name} is about a {word}", remedy=f"name it with --{word}")
    return list(dict.fromkeys(needs))


def _judged(known: _OnBroker, needs: list[Needed], source: str) -> list[dict[str, Any]]:
    """A row for each need; one row where the user decides alone."""
    from orbitmq.access.evaluation import Permissions
    from orbitmq.access.policies import Acl
    from orbitmq.access.policy_bodies import entry_text, read_policies

    _check_address(source)

    def row(needs: str, is_allowed: bool, because: str, entry: str | None = None) -> dict[str, Any]:
        result = "allowed" if is_allowed else "denied"
        return {"broker": known.broker.name, "needs": needs, "result": result, "because": because, "entry": entry}

    wanted = [f"{'|'.join(sorted(action.value for action in need.actions))} {need.text}" for need in needs]
    if known.user is None:
        return [row(", ".join(wanted), False, "there is no such user")]
    if (known.user.user_status or "").lower() == "disable":
        return [row(", ".join(wanted), False, "the user is disabled")]
    if (known.user.user_type or "").lower() == "super":
        return [row(", ".join(wanted), True, "a super user may do everything")]
    if not needs:
        return [row("", True, "a known caller is enough")]
    name = known.user.username or ""
    try:
        acl = Acl(name) if known.policies is None else read_policies(known.policies, name)
    except ValueError as error:
        raise ConfigurationError(f"policies of {name!r} on {known.broker.name}: {error}") from None
    rows = []
    for need, text in zip(needs, wanted, strict=True):
        judgement = Permissions(acl).judge(need, source)
        if judgement.entry is None or judgement.policy is None:
            rows.append(row(text, False, "no entry applies"))
        else:
            entry = f"{judgement.policy.value} {entry_text(judgement.entry)}"
            rows.append(row(text, judgement.is_allowed, entry, entry))
    return rows


@app.command("import", cls=ClusterCommand)
def import_users(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="plain_acl.yml, or JSON.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    broker: BrokerOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Create the users and policies of RocketMQ 4's plain_acl.yml, or of what `--json` lists.

    Users that exist stay as they are: of those it says what differs.

    JSON: what `access user list --passwords --json` or `access policy list --json` prints, or {"users": [...], "policies": [...]}.
    """
    from orbitmq.cli.access.access_import import import_file

    rows = import_file(file, dry_run=dry_run, broker=broker, cluster=cluster)
    show_rows(rows, columns=("user", "done", "entries", "broker"), empty="the file names no users")
    if dry_run:
        note("nothing was changed: --dry-run")
