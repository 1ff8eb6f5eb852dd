"""The orders of the cluster's story, computed without Spark."""

from __future__ import annotations

import json

import pytest
from examples.orders_on_a_cluster.orders import body_of, discount_percent, is_bad, priced


def test_an_order_is_priced_by_its_customer() -> None:
    (order,) = priced([3])
    sent = json.loads(body_of(3))
    assert (order.number, order.customer) == (3, sent["customer"])
    assert order.cents == sent["cents"] * (100 - discount_percent(sent["customer"])) // 100


def test_no_bad_order_is_one_object_of_numbers() -> None:
    bad = [number for number in range(1_000) if is_bad(number)]
    assert len(bad) == 20
    assert priced(bad) == []
    for number in bad:
        try:
            found = json.loads(body_of(number))
        except ValueError:
            continue
        assert not isinstance(found, dict) or not isinstance(found["cents"], int)


@pytest.mark.parametrize("number", [0, 49, 99])
def test_the_same_number_is_the_same_order(number: int) -> None:
    assert body_of(number) == body_of(number)
