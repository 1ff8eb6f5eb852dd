"""Metrics and traces of a client through OpenTelemetry.

    orbitmq serve --data /tmp/orbitmq &
    pip install opentelemetry-sdk
    python examples/opentelemetry_hooks.py [name-server]

`Telemetry` is what a service takes over; names are those of OpenTelemetry's conventions for messaging. `main` shows it with readers in
memory where a service has its exporters.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import propagate, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import orbitmq

TOPIC, GROUP = "TelemetryDemo", "telemetry-demo"


class Telemetry(orbitmq.ClientHooks):
    """Sends, their time and repeats, handler time, age, lag; and the trace context in the properties of messages."""

    def __init__(self, meters: MeterProvider, traces: TracerProvider) -> None:
        meter = meters.get_meter("orbitmq")
        self._tracer = traces.get_tracer("orbitmq")
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}")
        self._send_time = meter.create_histogram("messaging.client.operation.duration", "s")
        self._repeats = meter.create_counter("orbitmq.client.send.repeats", "{attempt}")
        self._handler_time = meter.create_histogram("messaging.process.duration", "s")
        self._age = meter.create_histogram("orbitmq.client.message.age", "s")
        self._lag: dict[orbitmq.MessageQueue, tuple[int, str]] = {}
        meter.create_observable_gauge("orbitmq.client.lag", [self._lags], "{message}")

    def sending(self, topic: str, properties: dict[str, str]) -> None:
        propagate.inject(
            properties
        )  # traceparent and tracestate of the W3C, of the span that is current where it is sent

    def sent(self, sent: orbitmq.SendEnded) -> None:
        labels = {"messaging.destination.name": sent.topic}
        if sent.error is not None:
            labels["error.type"] = type(sent.error).__name__
        self._sent.add(sent.messages_count, labels)
        self._send_time.record(sent.took_ms / 1_000, labels)
        self._repeats.add((sent.attempts_count or 1) - 1, labels)

    def fetched(self, fetched: orbitmq.Fetched) -> None:
        self._lag[fetched.queue] = (fetched.behind_count + fetched.unsettled_count, fetched.group)

    @contextmanager
    def handling(self, group: str, messages: Sequence[orbitmq.StoredMessage]) -> Iterator[None]:
        parents = [propagate.extract(message.properties) for message in messages]
        links = [trace.Link(trace.get_current_span(parent).get_span_context()) for parent in parents[1:]]
        name = f"process {messages[0].topic}"
        with self._tracer.start_as_current_span(name, parents[0], trace.SpanKind.CONSUMER, links=links):
            yield

    def handled(self, handled: orbitmq.Handled) -> None:
        labels = {
            "messaging.destination.name": handled.message.topic,
            "messaging.consumer.group.name": handled.group,
            "outcome": "done" if handled.succeeded else "failed",
        }
        self._handler_time.record(handled.took_ms / 1_000, labels)
        self._age.record(max(0, handled.age_ms) / 1_000, labels)

    def _lags(self, _: CallbackOptions) -> Iterator[Observation]:
        for queue, (lag, group) in self._lag.items():
            labels = {
                "messaging.destination.name": queue.topic,
                "messaging.destination.partition.id": f"{queue.broker_name}/{queue.queue_id}",
                "messaging.consumer.group.name": group,
            }
            yield Observation(lag, labels)


async def main(name_server: str) -> None:
    reader, spans = InMemoryMetricReader(), InMemorySpanExporter()
    meters, traces = MeterProvider([reader]), TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(spans))
    options = orbitmq.ClientOptions(hooks=Telemetry(meters, traces))
    first = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
    async with orbitmq.connect(name_server, options=options) as mq:
        with traces.get_tracer("shop").start_as_current_span("place an order") as order:
            await mq.send(TOPIC, b"42")
        async with mq.consumer(GROUP, TOPIC, options=first) as consumer:

            async def handle(message: orbitmq.ReceivedMessage) -> None:
                inside = trace.get_current_span().get_span_context()
                print("the handler is in the trace of the order:", inside.trace_id == order.get_span_context().trace_id)
                consumer.stop()

            await consumer.run(handle)
    print("spans:", ", ".join(sorted(span.name for span in spans.get_finished_spans())))
    data = reader.get_metrics_data()
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        print(
            metric.name,
            sum(getattr(point, "count", 0) or getattr(point, "value", 0) for point in metric.data.data_points),
        )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
