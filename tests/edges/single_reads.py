"""Edge: every read of the store's files fails once, for every way to ask for what is stored."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from tests.edges.faults import Kind
from tests.edges.run import EdgeRun
from tests.edges.traffic import now_ms
from tests.system.server_process import RawClient, pull_fields, send_fields

from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

MESSAGES: Final = 60
CALLS_MAX: Final = 40
"""Reads of one question that are failed, one after the other."""

MAY_SAY: Final = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
"""Answers to a question whose read failed; anything else has to be what is said without the fault."""

Answer = tuple[int, object]


def single_reads(run: EdgeRun) -> None:
    """Each question is asked once for every read that answering it makes, and that read fails. The answer is right or an error,
    and right when it is asked again."""
    first = run.start()
    first.create_topic("orders")
    with first.client() as client:
        positions = []
        for number in range(MESSAGES):
            fields = send_fields("orders", {"UNIQ_KEY": f"{number:032X}", "KEYS": f"key-{number}"})
            answer = client.call(RequestCode.SEND_MESSAGE_V2, fields, b"x" * 2_000)
            run.account.answered("send", answer.code)
            positions.append(int(answer.fields["msgId"][16:], 16))
    run.stop(first)
    server = run.start()
    run.faults.fail(Kind.READ_NOWAIT, errno.EAGAIN, "/data/")
    asked = run.random.randrange(20, 40)
    with server.client() as client:
        questions: dict[str, Callable[[], Answer]] = {
            "pull": lambda: _pull(client, asked),
            "view by id": lambda: _whole(client, RequestCode.VIEW_MESSAGE_BY_ID, offset=positions[asked]),
            "query by key": lambda: _whole(
                client, RequestCode.QUERY_MESSAGE, topic="orders", key=f"key-{asked}", maxNum=8, beginTimestamp=0,
                endTimestamp=now_ms() + 60_000,
            ),
            "search by time": lambda: _whole(
                client, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="orders", queueId=0, timestamp=now_ms() - 3_600_000
            ),
            "earliest store time": lambda: _whole(
                client, RequestCode.GET_EARLIEST_MSG_STORETIME, topic="orders", queueId=0
            ),
        }  # fmt: skip
        for name, ask in questions.items():
            _fail_each(run, name, ask, errno.EIO)
            _fail_each(run, name, ask, errno.EMFILE)
    run.stop(server)


def _fail_each(run: EdgeRun, name: str, ask: Callable[[], Answer], error: int) -> None:
    right = ask()
    run.expect(right[0] == ResponseCode.SUCCESS, f"{name} was answered {right[0]} without a fault")
    failed = refused = 0
    for call in range(CALLS_MAX):
        rule = run.faults.fail(Kind.READ, error, "/data/", skip=call, times=1)
        answer = ask()
        hit = run.faults.hits(rule) > call
        run.faults.heal(rule)
        if not hit:
            break
        failed += 1
        refused += answer != right
        run.account.answered(name, answer[0])
        run.expect(
            answer == right or answer[0] in MAY_SAY or _asks_again(answer, right),
            f"{name}, {errno.errorcode[error]} at read {call}: answered {str(answer)[:120]} instead of {str(right)[:120]}",
        )
        again = ask()
        run.expect(again == right, f"{name}, after {errno.errorcode[error]} at read {call}: {str(again)[:120]}")
    run.say(f"{name}: {failed} reads failed with {errno.errorcode[error]}, {refused} answers said so")


def _pull(client: RawClient, offset: int) -> Answer:
    answer = client.call(RequestCode.PULL_MESSAGE, pull_fields("orders", 0, offset))
    records = [] if answer.code else [record.queue_offset for record in iter_records(bytes(answer.body))]
    return answer.code, (offset, answer.fields.get("nextBeginOffset"), records)


def _asks_again(answer: Answer, right: Answer) -> bool:
    """A pull that ended before the fault, or is to be asked again: the next one begins behind what was given."""
    if not isinstance(answer[1], tuple) or answer[0] not in (
        ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ):  # fmt: skip
        return False
    offset, following, records = answer[1]
    wanted = right[1][2] if isinstance(right[1], tuple) else []
    return records == wanted[: len(records)] and following == str(offset + len(records))


def _whole(client: RawClient, code: RequestCode, **fields: object) -> Answer:
    answer = client.call(code, {name: str(value) for name, value in fields.items()})
    return answer.code, (bytes(answer.body or b""), dict(answer.fields))
