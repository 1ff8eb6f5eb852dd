"""Records what RocketMQ's proxy answers in the dialogues of `tests/worlds/grpc_dialogues.py`.

    python -m tests.vectors.record_grpc_dialogues GRPC_PORT NAME_SERVER

The broker is fresh, with its proxy in local mode and `recallMessageEnable=true`; the topics and the group are made here. A line of
`grpc/dialogues.jsonl` is a dialogue: its name, and the form of each answer.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

from tests.worlds.grpc_client import Client
from tests.worlds.grpc_dialogues import ORDERLY, TOPICS, Ask, Dialogue, Heard, Wait, dialogues, form

from orbitmq.protocol.grpc import messages
from orbitmq.protocol.grpc.message_prefix import with_prefix
from orbitmq.protocol.grpc.rpcs import RPCS, Rpc, Shape

VECTORS = Path(__file__).resolve().parent / "grpc" / "dialogues.jsonl"
ANSWER_LIMIT_S = 60


def answer_kind(rpc: Rpc) -> type:
    """The class of what an RPC is answered with."""
    kind: type = getattr(messages, "TelemetryCommand" if rpc is Rpc.TELEMETRY else f"{rpc}Response")
    return kind


async def ask(client: Client, asked: Ask) -> Heard:
    fields = {b"x-mq-client-version": asked.version.encode(), b"x-mq-language": b"JAVA", b"x-mq-protocol": b"v2"}
    if asked.timeout_ms is not None:
        fields[b"grpc-timeout"] = b"%dm" % asked.timeout_ms
    is_stream = RPCS[asked.rpc].shape is Shape.BIDIRECTIONAL
    stream_id = client.begin(asked.rpc, fields, client_id=asked.client)
    await client.send_all(stream_id, with_prefix(asked.message.SerializeToString()), end=not is_stream)
    async with asyncio.timeout(ANSWER_LIMIT_S):
        await client.until(lambda: stream_id in client.trailers or (is_stream and stream_id in client.answers))
    content, found, at = client.answers.get(stream_id, b""), [], 0
    while at < len(content):
        size = int.from_bytes(content[at + 1 : at + 5], "big")
        found.append(answer_kind(asked.rpc).FromString(content[at + 5 : at + 5 + size]))  # type: ignore[attr-defined]
        at += 5 + size
    return Heard(found, int(client.trailers.get(stream_id, {}).get("grpc-status", "0")))


async def hold(port: int, dialogue: Dialogue) -> list[dict[str, object]]:
    """Hold a dialogue with the server at a port; the form of each answer."""
    client, forms = Client(*await asyncio.open_connection("127.0.0.1", port)), []
    step = next(dialogue)
    while True:
        heard = Heard([], 0)
        if isinstance(step, Wait):
            await asyncio.sleep(step.ms / 1000)
        else:
            heard = await ask(client, step)
            forms.append({"rpc": step.rpc.value, **form(heard)})
        try:
            step = dialogue.send(heard)
        except StopIteration:
            client.writer.close()
            return forms


def prepare(name_server: str) -> None:
    command: list[str] = [sys.executable, "-m", "orbitmq.cli.main"]
    for topic, kind in TOPICS.items():
        subprocess.run(
            [*command, "topic", "create", topic, "--queues", "1", "--type", kind, "-n", name_server], check=True
        )
    subprocess.run([*command, "group", "create", ORDERLY, "--orderly", "-n", name_server], check=True)


def main() -> None:
    port, name_server = int(sys.argv[1]), sys.argv[2]
    prepare(name_server)
    with VECTORS.open("w", encoding="utf-8") as file:
        for name, dialogue in dialogues(int(time.time())).items():
            forms = asyncio.run(hold(port, dialogue))
            file.write(json.dumps({"name": name, "answers": forms}, ensure_ascii=False, sort_keys=True) + "\n")
            print(name, len(forms))


if __name__ == "__main__":
    main()
