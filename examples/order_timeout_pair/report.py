"""What a story of failing brokers says at its end: what followed each fault, and whether all promises were kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

from rich.console import Console
from rich.table import Table

from examples.order_timeout_pair.account import Account, Payment

COUNTS: Final = {"SEND_OK": "copied", "no copy": "not_copied", "lost": "lost", "repeated": "repeated"}
"""Heading -> field of a consequence."""


def print_faults(account: Account, console: Console, *, title: str, counts: Mapping[str, str] = COUNTS) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("fault", no_wrap=True)
    for heading in ("writing", "reading", *counts):
        table.add_column(heading, justify="right")
    for one in account.consequences():
        times = (f"{one.no_writing_ms / 1_000:.2f}", f"{one.no_reading_ms / 1_000:.2f}")
        table.add_row(one.fault.what, *times, *(f"{attrgetter(name)(one):,}" for name in counts.values()))
    console.print(table)


def print_orders(account: Account, console: Console) -> None:
    orders = account.orders.values()
    paid = [order.payment for order in orders]
    console.print(
        f"{len(orders):,} orders, {sum(order.is_copied for order in orders):,} of them answered SEND_OK; "
        f"{paid.count(Payment.RECALLED):,} paid and recalled, {paid.count(Payment.TOO_LATE):,} paid too late; "
        f"{sum(bool(order.received_ms) for order in orders):,} timed out; {len(account.ticks):,} ticks",
        soft_wrap=True,
    )


def print_verdict(broken: Sequence[str], console: Console, *, kept: str) -> bool:
    """Whether nothing was broken."""
    console.print(f"[red]BROKEN[/red]: {'; '.join(broken)}" if broken else f"kept: {kept}")
    return not broken
