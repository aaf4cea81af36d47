"""The changes of a table of orders: the same records for a seed, and final rows that any correct fold gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.errors import ConfigurationError
from barnabas.laboratory.orders.delivery import LATE_CHANGES_MAX, DeliverySettings, delivered
from barnabas.laboratory.orders.envelopes import ENVELOPES, Envelope
from barnabas.laboratory.orders.order_stream import OrderStream
from barnabas.laboratory.orders.order_table import Change, OrderSettings, changes

SETTINGS = OrderSettings(seed=3, orders=300, existing=20, schema_change=2_000)
COUNT = 4_000
Rows = dict[int, dict[str, Any]]


def records(stream: OrderStream, count: int = COUNT, at_most: int = 500) -> list[dict[str, Any]]:
    return [row for batch in stream.batches(count, at_most) for row in batch.to_pylist()]


def folded(rows: list[dict[str, Any]], envelope: Envelope) -> Rows:
    """Apply the records in order of arrival; the last one of an order wins."""
    table: Rows = {}
    for row in rows:
        for order_id, after, _ in applied(row, envelope):
            table.pop(order_id, None)
            if after is not None:
                table[order_id] = after
    return table


def applied(row: dict[str, Any], envelope: Envelope) -> Iterator[tuple[int, dict[str, Any] | None, int]]:
    """Yield the order, its new row, and the position of the change in the database's log."""
    key = json.loads(row["key"])
    value = None if row["value"] is None else json.loads(row["value"])
    if envelope == "debezium-schema":
        key, value = key["payload"], value and value["payload"]
    order_id = key.get("id", key.get("pk.id"))
    if envelope == "plain":
        yield order_id, value, 0
    elif value is not None and envelope == "maxwell":
        yield order_id, None if value["type"] == "delete" else value["data"], value["xid"]
    elif value is not None:
        yield order_id, value["after"], value["source"]["lsn"]


def rows_of(stream: OrderStream) -> Rows:
    """Return the final rows without null values, which records from before the schema change lack."""
    return {row["id"]: {name: value for name, value in row.items() if value is not None} for row in stream.truth.rows()}  # type: ignore[misc]


def without_nulls(rows: Rows) -> Rows:
    return {
        order_id: {name: value for name, value in row.items() if value is not None} for order_id, row in rows.items()
    }


def test_the_same_seed_gives_the_same_records_whatever_the_batches_are() -> None:
    delivery = DeliverySettings(repeats=0.05, late=0.05)
    first = records(OrderStream(SETTINGS, delivery))
    assert first == records(OrderStream(SETTINGS, delivery), at_most=7)
    assert first != records(OrderStream(OrderSettings(seed=4, orders=300), delivery))


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_the_last_record_of_each_order_gives_the_final_rows(envelope: Envelope) -> None:
    stream = OrderStream(SETTINGS, DeliverySettings(repeats=0.1), envelope)
    found = folded(records(stream), envelope)
    assert without_nulls(found) == rows_of(stream)
    assert len(found) > 250


@pytest.mark.parametrize("at_most", [1, 3, 64])
def test_a_stream_that_is_stopped_ends_with_its_repeated_and_late_changes(at_most: int) -> None:
    stream = OrderStream(SETTINGS, DeliverySettings(repeats=0.3), "plain")
    found = []
    for batch in stream.batches(None, at_most):
        found += batch.to_pylist()
        if len(found) > 500:
            stream.stop()
    assert without_nulls(folded(found, "plain")) == rows_of(stream)


def test_with_late_changes_only_the_order_of_the_database_gives_the_final_rows() -> None:
    stream = OrderStream(SETTINGS, DeliverySettings(repeats=0.05, late=0.1))
    made = records(stream)
    assert without_nulls(folded(made, "debezium")) != rows_of(stream)
    newest: dict[int, tuple[int, dict[str, Any] | None]] = {}
    for row in made:
        for order_id, after, number in applied(row, "debezium"):
            if number >= newest.get(order_id, (0, None))[0]:
                newest[order_id] = number, after
    expected = {order_id: after for order_id, (_, after) in newest.items() if after is not None}
    assert without_nulls(expected) == rows_of(stream)


def test_the_timestamps_of_an_order_increase_with_the_numbers_of_its_changes() -> None:
    made = [next(source) for source in [changes(OrderSettings(orders=5, existing=2, changes_per_s=10_000))] * 3_000]
    latest: dict[int, int] = {}
    for change in made:
        assert change.time_ms > latest.get(change.order_id, 0)
        latest[change.order_id] = change.time_ms
    kinds = [change.operation for change in made]
    assert {kind: kinds.count(kind) > 0 for kind in ("read", "insert", "update", "delete")} == dict.fromkeys(
        kinds, True
    )
    restored = {change.order_id for change in made if change.operation == "delete"} & {
        change.order_id for change in made if change.operation == "insert" and change.before is None
    }
    assert restored


def test_a_delete_has_a_tombstone_unless_the_connector_sends_none() -> None:
    made = records(OrderStream(SETTINGS))
    deletes = [number for number, row in enumerate(made) if row["value"] and json.loads(row["value"])["op"] == "d"]
    assert deletes
    for number in deletes:
        assert (made[number + 1]["key"], made[number + 1]["value"]) == (made[number]["key"], None)
        assert made[number + 1]["spread"] == made[number]["spread"]
    assert all(row["value"] for row in records(OrderStream(SETTINGS, tombstones=False)))
    assert not all(row["value"] for row in records(OrderStream(SETTINGS, envelope="plain", tombstones=False)))


def test_the_schema_of_a_value_names_the_fields_that_the_value_has() -> None:
    before: list[list[str]] = []
    after: list[list[str]] = []
    for row in records(OrderStream(SETTINGS, envelope="debezium-schema", tombstones=False)):
        value = json.loads(row["value"])
        fields = {field["field"]: field for field in value["schema"]["fields"]}
        assert list(fields) == list(value["payload"])
        for name in ("before", "after"):
            if value["payload"][name] is not None:
                columns = [field["field"] for field in fields[name]["fields"]]
                assert columns == list(value["payload"][name])
                (after if "priority" in columns else before).append(columns)
    assert len(before) > 1_000
    assert len(after) > 1_000


def test_a_late_change_arrives_after_the_next_one_of_its_order_or_at_the_end() -> None:
    made = [change_of(number, number % 700) for number in range(1, 3_000)]
    groups = list(delivered(iter(made), DeliverySettings(late=0.1), seed=1))
    arrived = [change for group in groups for change in group]
    assert sorted(arrived, key=lambda change: change.number) == made
    overtaken = 0
    newest: dict[int, int] = {}
    for change in arrived:
        overtaken += newest.get(change.order_id, 0) > change.number
        newest[change.order_id] = max(change.number, newest.get(change.order_id, 0))
    assert 100 < overtaken < 400


def test_a_late_change_of_an_order_without_later_changes_is_not_held_for_ever() -> None:
    made = (change_of(number, number) for number in range(1, 3 * LATE_CHANGES_MAX))
    waits = []
    newest = 0
    for group in delivered(made, DeliverySettings(late=0.01), seed=1):
        newest = max(newest, *(change.number for change in group))
        waits += [newest - change.number for change in group]
    assert 0 < max(waits) <= LATE_CHANGES_MAX


def change_of(number: int, order_id: int) -> Change:
    return Change(number, number, "insert", order_id, None, {"id": order_id})


@pytest.mark.parametrize(
    "wrong", [{"orders": 0}, {"existing": 11, "orders": 10}, {"changes_per_s": 0.0}, {"seed": -1}, {"start_ms": -1}]
)
def test_settings_out_of_bounds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        OrderSettings(**wrong)


@pytest.mark.parametrize("wrong", [{"late": 0.6}, {"repeats": -0.1}, {"repeats": float("nan")}])
def test_shares_out_of_bounds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        DeliverySettings(**wrong)
