"""The order-timeout story: every unpaid order is cancelled when its time is up.

For each order a message is sent that comes back after the order's delay level. A consumer receives it, looks whether the
order has been paid by then, and cancels it if not. Everything goes over a real socket to a real server, which this script
starts in a directory of its own and stops again. Exits with 1 when the outcome differs from the direct computation, when
a message is early, missing or doubled.

    python -m examples.order_timeout.story [--orders 20000] [--name-server host:port]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import orbitmq
from examples.order_timeout.orders import LEVEL_DELAYS_MS, Order, State, expected_states, read_orders, table_path
from examples.order_timeout.server import own_server

TOPIC = "order-timeouts"
GROUP = "order-timeout-checker"
SENDS_IN_FLIGHT = 256
DEFAULT_ORDERS = 20_000
PATIENCE_S = 60
"""How long to wait for messages after the last of them was due."""


class Check(msgspec.Struct):
    """Body of the delayed message."""

    order: int
    sent_ms: float


class Shop:
    """The shop's own books: which orders exist, when they were paid, what became of them."""

    def __init__(self, orders: list[Order]) -> None:
        self.orders = orders
        self.paid_at_ms: dict[int, float] = {}
        self.states: dict[int, State] = {}
        self.lateness_ms: dict[int, list[float]] = {level: [] for level in LEVEL_DELAYS_MS}
        self.doubled = 0

    def place(self, order: Order, now_ms: float) -> None:
        """A new order; the payment service books the payment at the time it happens."""
        if order.pays_after is not None:
            self.paid_at_ms[order.number] = now_ms + order.pays_after * order.allowed_ms

    def check(self, check: Check, now_ms: float) -> None:
        """Time is up for an order."""
        order = self.orders[check.order]
        if order.number in self.states:
            self.doubled += 1
            return
        due_ms = check.sent_ms + order.allowed_ms
        self.lateness_ms[order.level].append(now_ms - due_ms)
        paid_at = self.paid_at_ms.get(order.number)
        if paid_at is None:
            self.states[order.number] = State.CANCELLED
        else:
            self.states[order.number] = State.PAID if paid_at <= due_ms else State.REFUNDED


def now_ms() -> float:
    return time.time() * 1000


async def send_all(mq: orbitmq.Client, shop: Shop, progress: Progress) -> None:
    task = progress.add_task("orders placed", total=len(shop.orders))
    todo = iter(shop.orders)

    async def sender() -> None:
        for order in todo:
            placed = now_ms()
            shop.place(order, placed)
            body = msgspec.json.encode(Check(order.number, placed))
            await mq.send(TOPIC, body, tag=order.flight[:2], key=str(order.number), delay_level=order.level)
            progress.advance(task)

    async with asyncio.TaskGroup() as group:
        for _ in range(SENDS_IN_FLIGHT):
            group.create_task(sender())


async def receive_all(consumer: orbitmq.Consumer, shop: Shop, progress: Progress, done: asyncio.Event) -> None:
    task = progress.add_task("timeouts checked", total=len(shop.orders))
    async for message in consumer:
        shop.check(msgspec.json.decode(message.body, type=Check), now_ms())
        await message.ack()
        progress.advance(task)
        if len(shop.states) == len(shop.orders):
            done.set()


async def play(name_server: str, orders: list[Order], console: Console) -> Shop:
    shop = Shop(orders)
    columns = (
        TextColumn("{task.description:>16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    async with orbitmq.connect(name_server) as mq:
        await mq.admin.create_topic(TOPIC, queues_count=8)
        options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
        async with mq.consumer(GROUP, TOPIC, options=options) as consumer:
            with Progress(*columns, console=console) as progress:
                done = asyncio.Event()
                receiving = asyncio.create_task(receive_all(consumer, shop, progress, done))
                await send_all(mq, shop, progress)
                longest_s = max(LEVEL_DELAYS_MS[order.level] for order in orders) / 1000
                finished = asyncio.create_task(done.wait())
                await asyncio.wait(
                    {receiving, finished}, timeout=longest_s + PATIENCE_S, return_when=asyncio.FIRST_COMPLETED
                )
                await asyncio.sleep(0.5)  # a message delivered twice would follow at once
                finished.cancel()
                receiving.cancel()
                await asyncio.gather(receiving, finished, return_exceptions=True)
    return shop


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[int((len(values) - 1) * share)]


def report(shop: Shop, seconds: float, console: Console) -> bool:
    """Print what happened beside what had to happen; True when they agree."""
    happened = Counter(shop.states.values())
    expected = expected_states(shop.orders)
    states = Table(title="Orders by state")
    for heading in ("state", "happened", "computed from the table", ""):
        states.add_column(heading, justify="left" if heading in ("state", "") else "right")
    for state in State:
        same = happened[state] == expected[state]
        states.add_row(state.value, f"{happened[state]:,}", f"{expected[state]:,}", "ok" if same else "DIFFERENT")
    console.print(states)

    lateness = Table(title="Lateness in ms (received minus due, by the sender's clock)")
    for heading in ("delay level", "delay", "messages", "earliest", "p50", "p99", "max"):
        lateness.add_column(heading, justify="right")
    for level, values in shop.lateness_ms.items():
        if values:
            figures = (min(values), quantile(values, 0.5), quantile(values, 0.99), max(values))
            delay = f"{LEVEL_DELAYS_MS[level] // 1000} s"
            lateness.add_row(str(level), delay, f"{len(values):,}", *(f"{figure:.1f}" for figure in figures))
    console.print(lateness)

    wrong = [order.number for order in shop.orders if shop.states.get(order.number) is not order.outcome]
    missing = len(shop.orders) - len(shop.states)
    early = sum(value < 0 for values in shop.lateness_ms.values() for value in values)
    problems = []
    for count, what in (
        (missing, "timeouts never came back"),
        (shop.doubled, "timeouts came back twice"),
        (early, "timeouts came early"),
        (len(wrong), "orders ended in another state than computed"),
    ):
        if count:
            problems.append(f"{count:,} {what}")
    verdict = "; ".join(problems) or "every state as computed, nothing early, lost or doubled"
    console.print(f"{len(shop.orders):,} orders in {seconds:.1f} s: {verdict}")
    return not problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=DEFAULT_ORDERS, help="how many flights become orders (0: all)")
    parser.add_argument("--name-server", help="use a running cluster instead of a server of our own")
    options = parser.parse_args()
    console = Console()
    orders = read_orders(table_path(), options.orders or None)
    console.print(f"{len(orders):,} orders from the flights that left New York in 2013")
    began = time.monotonic()
    if options.name_server:
        shop = asyncio.run(play(options.name_server, orders, console))
    else:
        with own_server(console) as name_server:
            shop = asyncio.run(play(name_server, orders, console))
    return 0 if report(shop, time.monotonic() - began, console) else 1


if __name__ == "__main__":
    sys.exit(main())
