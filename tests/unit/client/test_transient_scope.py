"""The epochs of a producer's own scope: they roll, but never away from a send that may be repeated."""

from __future__ import annotations

from orbitmq.client.sending.transient_scope import EPOCH_SENDS, TransientScope, once_text
from orbitmq.limits.client import CLIENT_EPOCH_SENDS_MAX, TRANSIENT_EPOCH_MS, TRANSIENT_REPEAT_MS_MAX
from orbitmq.protocol.properties import decode_properties


def send(scope: TransientScope, count: int, now_ms: int = 0) -> None:
    for _ in range(count):
        scope.leave(scope.enter(now_ms))


def test_the_properties_name_scope_and_epoch() -> None:
    scope = TransientScope("x")
    scope.enter(0)
    assert decode_properties(scope.text) == {"ORBITMQ_SCOPE": "~x", "ORBITMQ_EPOCH": "1"}
    assert decode_properties(once_text("job", 7, "k")) == {
        "ORBITMQ_SCOPE": "job",
        "ORBITMQ_EPOCH": "7",
        "ORBITMQ_ONCE_KEY": "k",
    }


def test_an_epoch_ends_with_its_number_of_sends() -> None:
    scope = TransientScope("x")
    send(scope, EPOCH_SENDS)
    assert scope.epoch == 1
    send(scope, 1)
    assert scope.epoch == 2


def test_an_epoch_ends_with_its_time() -> None:
    scope = TransientScope("x")
    send(scope, 1, now_ms=5)
    send(scope, 1, now_ms=5 + TRANSIENT_EPOCH_MS - 1)
    assert scope.epoch == 1
    send(scope, 1, now_ms=5 + TRANSIENT_EPOCH_MS)
    assert scope.epoch == 2


def test_a_send_under_way_keeps_its_epoch_known() -> None:
    scope = TransientScope("x")
    slow = scope.enter(0)
    send(scope, EPOCH_SENDS)
    assert scope.epoch == 2  # the previous epoch is still remembered
    send(scope, 3 * EPOCH_SENDS, now_ms=40_000)
    assert scope.epoch == 2  # a further one would make the slow send's repeat stale
    assert scope.may_repeat(slow, 40_000)
    scope.leave(slow)
    send(scope, 1, now_ms=40_000)
    assert scope.epoch == 3


def test_an_epoch_that_has_become_too_large_gives_stragglers_up() -> None:
    scope = TransientScope("x")
    slow = scope.enter(0)
    send(scope, EPOCH_SENDS + CLIENT_EPOCH_SENDS_MAX)
    assert scope.epoch == 3
    assert not scope.may_repeat(slow, 10)
    scope.leave(slow)  # harmless
    send(scope, 1)


def test_what_a_broker_may_have_forgotten_is_not_repeated() -> None:
    scope = TransientScope("x")
    epoch = scope.enter(0)
    assert scope.may_repeat(epoch, TRANSIENT_REPEAT_MS_MAX)
    assert not scope.may_repeat(epoch, TRANSIENT_REPEAT_MS_MAX + 1)
