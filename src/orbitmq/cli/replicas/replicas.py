"""`orbitmq replica`: which brokers are masters and slaves, who follows whom, and how far behind; changes of these roles.

Rules of this file
1. Each broker is asked twice: for RocketMQ's form (request 907), and for its runtime information, where brokers of ours tell more.
2. The table has a line for each slave of a master, and one for a master without slaves; JSON has an object for each broker.
3. A broker that does not answer is a line with its problem. When none answers, the first problem is the command's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from orbitmq.cli.asking.cluster_access import ClusterOption, run
from orbitmq.cli.asking.shared_options import ClusterCommand, OutputCommand
from orbitmq.cli.replicas.replica_engine import engine
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.instants import instant
from orbitmq.cli.shared.output import note, print_json, show_done, show_rows, write_text

if TYPE_CHECKING:
    from orbitmq.cli.replicas.replica_adding import SlaveSettings
    from orbitmq.client import Client
    from orbitmq.client.admin import Broker
    from orbitmq.protocol.remoting.bodies import HaRuntimeInfo
    from orbitmq.protocol.remoting.replication_bodies import DemoteAnswer, ReseedAnswer

app = typer.Typer(
    help="Masters and slaves: who follows whom, and how far behind.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

app.command(cls=OutputCommand)(engine)

COLUMNS: Final = (
    "broker", "id", "address", "role", "log_end", "confirmed", "other_end", "position", "behind_bytes", "behind_ms",
    "state", "note",
)  # fmt: skip


def _address(given: str) -> str:
    """An argument that is an address. `BadParameter` for the name of a broker: it may mean several."""
    from orbitmq.client.addresses import split_address
    from orbitmq.errors import ConfigurationError

    try:
        split_address(given)
    except ConfigurationError as error:
        raise typer.BadParameter(f"{error}; orbitmq broker list shows those of brokers") from error
    return given


NameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[BROKER]",
        help="Only brokers of this name, master and slaves; or one, by host:port.",
        show_default=False,
    ),
]


@app.callback()
def replica() -> None:
    """Masters and slaves: who follows whom, and how far behind."""


@app.command(cls=ClusterCommand)
def status(name: NameArgument = None, cluster: ClusterOption = None) -> None:
    """Show of every broker its role and the end of its log; of a master each slave, of a slave its master."""

    async def work(client: Client) -> list[dict[str, Any]]:
        from orbitmq.errors import ClientError

        told: list[dict[str, Any]] = []
        failures: list[ClientError] = []
        for broker in await _meant(client, name, cluster):
            of_it = {
                "cluster": broker.cluster,
                "broker": broker.name,
                "id": broker.broker_id,
                "address": broker.address,
            }
            try:
                ha = await client.admin.broker_ha_status(broker.address)
                told.append({**of_it, **told_by(ha, await client.admin.broker_runtime(broker.address))})
            except ClientError as error:
                failures.append(error)
                told.append({**of_it, "problem": str(error)})
        if failures and len(failures) == len(told):
            raise failures[0]
        return told

    brokers = run(work)
    rows = brokers if chosen_output() is Output.JSON else [row for broker in brokers for row in table_rows(broker)]
    show_rows(rows, columns=COLUMNS, empty="no brokers")


SlaveArgument = Annotated[
    str, typer.Argument(metavar="SLAVE", help="The slave, by host:port.", show_default=False, callback=_address)
]
MasterArgument = Annotated[
    str, typer.Argument(metavar="MASTER", help="The master, by host:port.", show_default=False, callback=_address)
]
IdArgument = Annotated[int, typer.Argument(metavar="ID", min=1, help="brokerId of the slave.", show_default=False)]


@app.command(cls=ClusterCommand)
def promote(
    slave: SlaveArgument,
    synchronous: Annotated[bool, typer.Option("--synchronous", help="As SYNC_MASTER: sends wait for slaves.")] = False,
    although_master_lives: Annotated[
        bool, typer.Option("--although-master-lives", help="What its master takes from then on is lost.")
    ] = False,
    although_behind: Annotated[
        bool, typer.Option("--although-behind", help="What another slave has and this one lacks is lost.")
    ] = False,
) -> None:
    """Make a slave the master of its group while it runs, when its master is gone for good or was stopped."""

    async def work(client: Client) -> int:
        return await client.admin.promote_slave(
            slave,
            synchronous=synchronous,
            although_master_lives=although_master_lives,
            although_behind=although_behind,
        )

    end = run(work)
    role = "SYNC_MASTER" if synchronous else "ASYNC_MASTER"
    show_done(
        f"{slave} is the master now, from position {end} of the log on; give it brokerRole={role} and brokerId=0 before its next start",
        {"address": slave, "role": role, "end": end},
    )


BrokerIdOption = Annotated[
    int,
    typer.Option(
        "--id",
        min=0,
        help="brokerId that it gets as a slave; without it that of its settings, or the first free one.",
        show_default=False,
    ),
]


@app.command(cls=ClusterCommand)
def demote(
    master: MasterArgument,
    slave_id: BrokerIdOption = 0,
    new_master: Annotated[
        str, typer.Option("--master", metavar="HOST:PORT", help="The master that it follows.", show_default=False)
    ] = "",
    although_behind: Annotated[
        bool, typer.Option("--although-behind", help="What this master alone has is lost, unless it leads again.")
    ] = False,
) -> None:
    """Make a master a slave while it runs: it takes nothing any more, gives its slaves what they lack, and follows the next master."""

    async def work(client: Client) -> DemoteAnswer:
        from orbitmq.protocol.remoting.replication_bodies import DemoteRequest

        port = await _port_for_slaves(client, new_master) if new_master else ""
        wanted = DemoteRequest(
            broker_id=slave_id, master=new_master, port_for_slaves=port, although_behind=although_behind
        )
        return await client.admin.demote_master(master, wanted)

    answer = run(work)
    show_done(
        f"{master} is slave {answer.broker_id} now, its log ends at {answer.end}; "
        f"give it brokerRole=SLAVE and brokerId={answer.broker_id} before its next start",
        {"address": master, "id": answer.broker_id, "end": answer.end},
    )


@app.command(cls=ClusterCommand)
def switch(
    name: Annotated[
        str,
        typer.Argument(metavar="BROKER", help="Name of the brokers, or the master, by host:port.", show_default=False),
    ],
    successor: Annotated[
        int,
        typer.Option(
            "--to",
            min=0,
            help="brokerId of the slave that becomes the master; without it the one that has most.",
            show_default=False,
        ),
    ] = 0,
    slave_id: BrokerIdOption = 0,
    cluster: ClusterOption = None,
) -> None:
    """Exchange a master and a slave that keeps up, while both run: nothing is lost, and where the slave fails its master leads on."""

    async def work(client: Client) -> tuple[str, DemoteAnswer, bool]:
        from orbitmq.errors import NotFoundError
        from orbitmq.protocol.remoting.replication_bodies import DemoteRequest

        masters = [one.address for one in await _meant(client, name, cluster) if one.broker_id == 0]
        if not masters:
            raise NotFoundError(
                f"no master is among {name!r}",
                remedy="name the master, or all by their name; where none leads make one the master: orbitmq replica promote",
            )
        if len(masters) > 1:
            raise NotFoundError(f"{name!r} names {len(masters)} masters", remedy="name one, by host:port")
        wanted = DemoteRequest(broker_id=slave_id, hands_over=True, successor=successor)
        is_group = "orbitmqReplicaMember" in await client.admin.broker_runtime(masters[0])
        return masters[0], await client.admin.demote_master(masters[0], wanted), is_group

    former, answer, is_group = run(work)
    done = f"{answer.master} leads the group now, from position {answer.end} of the log on, and {former} follows it"
    show_done(
        done
        if is_group
        else f"{answer.master} is the master now, from position {answer.end} of the log on, and {former} its slave {answer.broker_id}; "
        "let their settings say so before their next start",
        {"address": answer.master, "end": answer.end, "former": former, "id": answer.broker_id},
    )


async def _port_for_slaves(client: Client, master: str) -> str:
    """Where the master whose main port this is takes slaves."""
    from orbitmq.errors import NotFoundError

    listens_at = (await client.admin.broker_runtime(master)).get("orbitmqReplicaPort", "")
    if not listens_at:
        raise NotFoundError(f"{master} takes no slaves")
    return f"{master.rpartition(':')[0]}:{listens_at.rpartition(':')[2]}"


@app.command(cls=ClusterCommand)
def add(
    master: MasterArgument,
    slave_id: Annotated[
        int | None,
        typer.Option("--id", min=1, help="brokerId of the slave; without it the first free one.", show_default=False),
    ] = None,
) -> None:
    """Show the settings with which a broker becomes a slave of a master, which needs no word of it; or why it would take none."""
    from orbitmq.cli.replicas.replica_adding import as_file, slave_settings

    async def work(client: Client) -> SlaveSettings:
        facts = await client.admin.broker_runtime(master)
        config = await client.admin.broker_config(master)
        brokers = await client.admin.brokers()
        taken = {one.broker_id for one in brokers if one.name == config.get("brokerName") and one.broker_id}
        return slave_settings(master, facts, config, taken, slave_id)

    found = run(work)
    if chosen_output() is Output.JSON:
        print_json({"master": master, "settings": found.settings, "notes": found.notes})
        return
    write_text(as_file(found))
    for text in found.notes:
        note(text)


@app.command(cls=ClusterCommand)
def reseed(
    slave: SlaveArgument,
    although_parted: Annotated[
        bool, typer.Option("--although-parted", help="What it has and its master has not is only put aside.")
    ] = False,
) -> None:
    """Have a slave or a member of a group begin anew: its store is put aside, in its own directory, and it copies its master or leader from
    the oldest byte on."""

    async def work(client: Client) -> ReseedAnswer:
        return await client.admin.reseed_slave(slave, although_parted=although_parted)

    answer = run(work)
    when = "copies its master anew now" if answer.restarts else "copies its master anew from its next start on"
    show_done(
        f"{slave} {when}; what it had is put into {answer.aside} in its data directory, to be removed by you",
        {"address": slave, "aside": answer.aside, "restarts": answer.restarts},
    )


@app.command(name="accept-loss", cls=ClusterCommand)
def accept_loss(
    member: Annotated[
        str,
        typer.Argument(
            metavar="MEMBER", help="The member that is to lead, by host:port.", show_default=False, callback=_address
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Accept it; without this only what may be lost is told.")] = False,
    although_leader_lives: Annotated[
        bool, typer.Option("--although-leader-lives", help="What its leader takes from then on is lost.")
    ] = False,
) -> None:
    """Have a member of a replicated group lead with what it has, when nobody who has everything is left."""

    async def work(client: Client) -> int:
        return await client.admin.promote_slave(
            member, although_master_lives=although_leader_lives, although_behind=yes
        )

    end = run(work)
    show_done(f"{member} leads the group, with its log up to position {end}", {"address": member, "end": end})


@app.command(cls=ClusterCommand)
def remove(master: MasterArgument, slave_id: IdArgument) -> None:
    """Have a master forget a slave, so that another directory may come with its brokerId: one that was emptied, or of another machine."""

    async def work(client: Client) -> bool:
        return await client.admin.forget_slave(master, slave_id)

    was_known = run(work)
    text = f"slave {slave_id} is forgotten" if was_known else f"no slave {slave_id} has followed {master}"
    show_done(text, {"address": master, "id": slave_id, "was_known": was_known})


async def _meant(client: Client, name: str | None, cluster: str | None) -> list[Broker]:
    from orbitmq.errors import NotFoundError

    brokers = await client.admin.brokers(cluster)
    if name is None:
        return brokers
    meant = [broker for broker in brokers if name in (broker.name, broker.address)]
    if not meant:
        known = ", ".join(f"{broker.name} ({broker.address})" for broker in brokers) or "none"
        raise NotFoundError(f"there is no broker {name!r}", remedy=f"known are: {known}")
    return meant


def told_by(ha: HaRuntimeInfo, facts: Mapping[str, str]) -> dict[str, Any]:
    """What one broker says, by the names of the JSON form. RocketMQ's brokers have no facts of replicas: what only these tell is None."""
    told: dict[str, Any] = {
        "role": facts.get("orbitmqReplicaRole") or ("MASTER" if ha.master else "SLAVE"),
        "log_end": ha.master_commit_log_max_offset,
        "confirmed_end": _number(facts.get("orbitmqReplicaConfirmedEnd")),
        "trouble": facts.get("orbitmqReplicaTrouble"),
    }
    if member := facts.get("orbitmqReplicaMember"):
        told["member"] = member
        told["epoch"] = _number(facts.get("orbitmqReplicaEpoch"))
        told["in_sync"] = _names(facts.get("orbitmqReplicaInSync", ""))
        told["learners"] = _names(facts.get("orbitmqReplicaLearners", ""))
    if ha.master:
        told["listens_at"] = facts.get("orbitmqReplicaPort")
        told["copies_needed"] = _number(facts.get("orbitmqReplicaCopiesNeeded"))
        told["slaves"] = _slaves(ha, facts.get("orbitmqReplicaSlaves"))
        told["slaves"] += _silent(told["slaves"], facts.get("orbitmqReplicaKnown"))
        return told
    client = ha.ha_client_runtime_info
    connected = facts.get("orbitmqReplicaConnected")
    told["log_end"] = client.max_offset
    told["master"] = facts.get("orbitmqReplicaMaster", client.master_addr) or None
    told["connected"] = None if connected is None else connected == "true"
    told["since_ms"] = _number(facts.get("orbitmqReplicaSinceMillis"))
    told["last_read_ms"] = client.last_read_timestamp or None
    return told


def _names(text: str) -> list[str]:
    return text.split(",") if text else []


def _slaves(ha: HaRuntimeInfo, ours: str | None) -> list[dict[str, Any]]:
    rates = {slave.addr: slave.transferred_byte_in_second for slave in ha.ha_connection_info}
    if ours is not None:
        return [
            {
                "slave": slave["slave"],
                "address": slave["address"],
                "main_address": slave.get("mainAddress") or None,
                "position": slave["position"],
                "behind_bytes": slave["behindBytes"],
                "behind_ms": slave["behindMillis"],
                "state": slave["state"],
                "why_not": slave["whyNot"],
                "heard_ms": slave.get("heardMillis") or None,
                "bytes_per_second": rates.get(slave["address"]),
            }
            for slave in msgspec.json.decode(ours)
        ]
    return [
        {
            "slave": slave.addr,
            "address": slave.addr,
            "main_address": None,
            "position": slave.slave_ack_offset,
            "behind_bytes": slave.diff,
            "behind_ms": None,
            "state": "counted" if slave.in_sync else "behind",
            "why_not": None,
            "heard_ms": None,
            "bytes_per_second": slave.transferred_byte_in_second,
        }
        for slave in ha.ha_connection_info
    ]


def _silent(slaves: list[dict[str, Any]], known: str | None) -> list[dict[str, Any]]:
    """Slaves that have followed, as the master has kept, of which it has heard nothing since its start."""
    heard = {slave["slave"] for slave in slaves}
    return [
        {
            **dict.fromkeys(("main_address", "position", "behind_bytes", "behind_ms", "heard_ms", "bytes_per_second")),
            "slave": str(slave_id),
            "address": "",
            "state": "away",
            "why_not": "not heard since its master was started",
        }
        for slave_id in msgspec.json.decode(known or "[]", type=list[int])
        if str(slave_id) not in heard
    ]


def table_rows(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One broker as lines of the table."""
    row = {name: told.get(name) for name in ("broker", "id", "address", "role", "log_end")}
    row["confirmed"] = told.get("confirmed_end")
    if "member" in told:
        row["role"] = f"{told['role']} {told['member']} in epoch {told['epoch']}"
    if "problem" in told:
        return [{**row, "state": "no answer", "note": told["problem"]}]
    if "slaves" not in told:
        return [{**row, "other_end": told["master"], "state": _following(told["connected"]), "note": _slave_note(told)}]
    rows = [
        {
            **row,
            "other_end": _slave_named(slave),
            "position": slave["position"],
            "behind_bytes": slave["behind_bytes"],
            "behind_ms": slave["behind_ms"],
            "state": slave["state"],
            "note": _why_not(slave),
        }
        for slave in told["slaves"]
    ]
    if not rows:
        nowhere = "it opens no port for slaves" if told["listens_at"] == "" else None
        return [{**row, "state": "no slaves", "note": told["trouble"] or nowhere}]
    if told["trouble"]:
        rows[0]["note"] = "; ".join(filter(None, (told["trouble"], rows[0]["note"])))
    return rows


def _slave_named(slave: Mapping[str, Any]) -> str:
    """Its id and where it serves clients, where it said so; else the address of its connection."""
    if not slave["main_address"]:
        return str(slave["address"] or slave["slave"])
    return f"{slave['slave']} at {slave['main_address']}"


def _why_not(slave: Mapping[str, Any]) -> str:
    """Why a slave does not count; of one that is away also when it was last heard."""
    heard = f"last heard {instant(slave['heard_ms'])}" if slave["heard_ms"] else ""
    return ", ".join(filter(None, (slave["why_not"], heard)))


def _following(connected: bool | None) -> str | None:
    return None if connected is None else "follows" if connected else "does not follow"


def _slave_note(told: Mapping[str, Any]) -> str:
    parts = [told["trouble"] or ""]
    if told["since_ms"]:
        parts.append(f"since {instant(told['since_ms'])}")
    if told["last_read_ms"]:
        parts.append(f"last read {instant(told['last_read_ms'])}")
    return ", ".join(filter(None, parts))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None
