"""The metrics that clients push: who may push when, what is kept of it, and what Prometheus gets."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker import client_telemetry
from barnabas.broker.broker import Broker
from barnabas.broker.client_telemetry import ClientTelemetry, Subscription, prometheus_name, requested_metrics
from barnabas.broker.environment import Environment
from barnabas.broker.settings.static import BrokerConfig
from barnabas.client.standard_metrics import CONSUMER, PRODUCER
from barnabas.clock import ManualClock
from barnabas.errors import ConfigurationError, ErrorCode
from barnabas.metrics.exposition import exposition
from barnabas.metrics.otlp import Point, encode_metrics
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest
from barnabas.records.compression import Compression, compress
from tests.support.in_process_broker import Caller, run_with_broker
from tests.unit.client.test_standard_metrics import REQUIRED_OF_CONSUMERS, REQUIRED_OF_PRODUCERS

INTERVAL_S = 30.0
BYTES_MAX = 1_000_000
CREATIONS = "org.apache.kafka.producer.connection.creation.total"
LATENCY = "org.apache.kafka.producer.node.request.latency.avg"


def gauge_point(name: str, value: float, **attributes: str) -> Point:
    return Point(name, is_counter=False, is_delta=False, value=value, attributes=tuple(attributes.items()))


def delta(name: str, value: float, **attributes: str) -> Point:
    return Point(name, is_counter=True, is_delta=True, value=value, attributes=tuple(attributes.items()))


def encoded(*points: Point) -> bytes:
    return encode_metrics(points, {}, started_ns=1, now_ns=2)


class Telemetry(ClientTelemetry):
    """What is tested, with a clock that moves by hand, and calls without steps."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        ids = (uuid.UUID(int=number) for number in range(100, 2**20))
        super().__init__(
            metrics=["*"],
            interval_ms=int(INTERVAL_S * 1000),
            bytes_max=BYTES_MAX,
            clock=self.clock,
            new_id=lambda: next(ids),
        )

    def subscribed(self, client_id: str = "web") -> Subscription:
        found = self.subscribe(bytes(16), client_id)
        assert found.error is ErrorCode.NONE
        return found

    def pushed(
        self,
        by: Subscription,
        content: bytes = b"",
        compression: int = Compression.NONE,
        *,
        client_id: str | None = "web",
        subscription_id: int | None = None,
        is_terminating: bool = False,
    ) -> ErrorCode:
        given = by.subscription_id if subscription_id is None else subscription_id
        steps = self.push(by.client_instance_id, client_id, given, compression, content, is_terminating=is_terminating)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return ErrorCode(end.value)

    def values(self) -> dict[tuple[str, str], float]:
        """Return the values of clients by name and client id."""
        return {
            (sample.metric.name, sample.labels[0]): sample.value for sample in self.collect() if sample.metric.labels
        }

    def count(self, name: str) -> float:
        [value] = [each.value for each in self.collect() if each.metric.name.endswith(name)]
        return value


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


# --- who may push when --------------------------------------------------------------------------------------


def test_client_gets_an_instance_id_and_keeps_its_subscription_id(telemetry: Telemetry) -> None:
    first = telemetry.subscribed()
    telemetry.clock.advance(INTERVAL_S)
    assert telemetry.subscribe(first.client_instance_id, "web") == first
    assert telemetry.subscribed().client_instance_id != first.client_instance_id


def test_subscription_ids_have_32_bits_with_sign(telemetry: Telemetry) -> None:
    ids = [telemetry.subscribed().subscription_id for _ in range(100)]
    assert all(-(2**31) <= each < 2**31 for each in ids)
    assert min(ids) < 0 < max(ids)


def test_client_that_asks_too_early_is_throttled(telemetry: Telemetry) -> None:
    known = telemetry.subscribed()
    telemetry.clock.advance(INTERVAL_S - 0.001)
    assert telemetry.subscribe(known.client_instance_id, "web").error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    telemetry.clock.advance(0.001)
    assert telemetry.subscribe(known.client_instance_id, "web").error is ErrorCode.NONE
    assert telemetry.count("throttle_count_total") == 1


def test_first_push_may_come_early_and_the_next_one_not(telemetry: Telemetry) -> None:
    client = telemetry.subscribed()
    telemetry.clock.advance(0.001)
    assert telemetry.pushed(client) is ErrorCode.NONE
    telemetry.clock.advance(INTERVAL_S - 0.001)
    assert telemetry.pushed(client) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    telemetry.clock.advance(0.001)
    assert telemetry.pushed(client) is ErrorCode.NONE


def test_terminating_push_may_come_early_and_ends_the_client(telemetry: Telemetry) -> None:
    client = telemetry.subscribed()
    assert telemetry.pushed(client, encoded(delta(CREATIONS, 1))) is ErrorCode.NONE
    assert telemetry.pushed(client, encoded(delta(CREATIONS, 2)), is_terminating=True) is ErrorCode.NONE
    telemetry.clock.advance(INTERVAL_S)
    assert telemetry.pushed(client) is ErrorCode.INVALID_REQUEST
    assert telemetry.values() == {("org_apache_kafka_producer_connection_creation_total", "web"): 3.0}


def test_push_with_another_subscription_is_refused_and_the_client_may_ask_at_once(telemetry: Telemetry) -> None:
    client = telemetry.subscribed()
    assert telemetry.pushed(client, subscription_id=client.subscription_id ^ 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert telemetry.subscribe(client.client_instance_id, "web") == client
    assert telemetry.count("unknown_subscription_request_count_total") == 1


def test_push_is_taken_from_a_client_that_another_broker_has_subscribed(telemetry: Telemetry) -> None:
    client = Telemetry().subscribed()
    assert telemetry.pushed(client, encoded(delta(CREATIONS, 1))) is ErrorCode.NONE


@pytest.mark.parametrize("reserved", [bytes(16), bytes(15) + b"\x01"])
def test_push_without_an_instance_id_is_refused(telemetry: Telemetry, reserved: bytes) -> None:
    assert telemetry.pushed(Subscription(ErrorCode.NONE, reserved, 1)) is ErrorCode.INVALID_REQUEST


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", list(Compression))
def test_push_may_be_compressed_in_each_way(telemetry: Telemetry, compression: Compression) -> None:
    content = compress(compression, encoded(delta(CREATIONS, 4)))
    assert telemetry.pushed(telemetry.subscribed(), content, compression) is ErrorCode.NONE
    assert [*telemetry.values().values()] == [4.0]


@pytest.mark.parametrize("compression", [-1, 5, 127])
def test_unknown_compression_is_refused(telemetry: Telemetry, compression: int) -> None:
    client = telemetry.subscribed()
    assert telemetry.pushed(client, b"x", compression) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert telemetry.subscribe(client.client_instance_id, "web").error is ErrorCode.NONE


def test_push_that_is_too_large_is_refused(telemetry: Telemetry) -> None:
    assert telemetry.pushed(telemetry.subscribed(), bytes(BYTES_MAX + 1)) is ErrorCode.TELEMETRY_TOO_LARGE


@pytest.mark.parametrize("compression", list(Compression)[1:])
def test_push_that_is_too_large_when_decompressed_is_refused(telemetry: Telemetry, compression: Compression) -> None:
    content = compress(compression, bytes(BYTES_MAX + 1))
    assert telemetry.pushed(telemetry.subscribed(), content, compression) is ErrorCode.TELEMETRY_TOO_LARGE
    assert telemetry.count("plugin_error_count_total") == 1


@pytest.mark.parametrize("compression", list(Compression))
def test_push_that_cannot_be_decoded_is_refused_whole(telemetry: Telemetry, compression: Compression) -> None:
    good = encoded(delta(CREATIONS, 1))
    content = compress(compression, good + b"\x0a\x7f")
    assert telemetry.pushed(telemetry.subscribed(), content, compression) is ErrorCode.INVALID_RECORD
    assert telemetry.pushed(telemetry.subscribed(), b"\x01\x02\x03", compression) is ErrorCode.INVALID_RECORD
    assert telemetry.values() == {}


# --- what is kept -------------------------------------------------------------------------------------------


def test_deltas_add_up_and_gauges_are_replaced(telemetry: Telemetry) -> None:
    client = telemetry.subscribed()
    for value in (1.0, 2.0):
        telemetry.pushed(client, encoded(delta(CREATIONS, value), gauge_point(LATENCY, value)))
        telemetry.clock.advance(INTERVAL_S)
    assert telemetry.values() == {
        ("org_apache_kafka_producer_connection_creation_total", "web"): 3.0,
        ("org_apache_kafka_producer_node_request_latency_avg", "web"): 2.0,
    }


def test_sums_since_the_start_of_a_client_are_replaced(telemetry: Telemetry) -> None:
    client = telemetry.subscribed()
    for value in (1.0, 2.0):
        telemetry.pushed(client, encoded(Point(CREATIONS, is_counter=True, is_delta=False, value=value)))
        telemetry.clock.advance(INTERVAL_S)
    assert [*telemetry.values().values()] == [2.0]


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_counter_takes_finite_growth_only(telemetry: Telemetry, value: float) -> None:
    telemetry.pushed(telemetry.subscribed(), encoded(delta(CREATIONS, value)))
    assert telemetry.values() == {}
    assert telemetry.count("dropped_total") == 1


def test_silent_client_is_forgotten_with_its_series(telemetry: Telemetry) -> None:
    telemetry.pushed(telemetry.subscribed(), encoded(delta(CREATIONS, 1)))
    telemetry.clock.advance(3 * INTERVAL_S - 0.001)
    assert telemetry.values() != {}
    telemetry.clock.advance(0.001)
    assert telemetry.values() == {}
    telemetry.subscribed("other")
    assert telemetry.count("instance_count") == 1


def test_instances_are_limited_and_the_longest_silent_one_goes(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_telemetry, "INSTANCES_MAX", 2)
    for name in ("a", "b", "c"):
        telemetry.pushed(telemetry.subscribed(name), encoded(delta(CREATIONS, 1)), client_id=name)
    assert {client_id for _, client_id in telemetry.values()} == {"b", "c"}


def test_series_are_limited_for_each_client_and_for_all(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_telemetry, "SERIES_PER_INSTANCE_MAX", 3)
    monkeypatch.setattr(client_telemetry, "SERIES_MAX", 5)
    points = [gauge_point("client.depth", 1.0, queue=str(number)) for number in range(4)]
    for name in ("a", "b"):
        telemetry.pushed(telemetry.subscribed(name), encoded(*points), client_id=name)
    kept = [sample.labels[0] for sample in telemetry.collect() if sample.metric.labels]
    assert kept == ["a", "a", "a", "b", "b"]
    assert telemetry.count("dropped_total") == 3


@pytest.mark.parametrize("limit", ["SERIES_BYTES_PER_INSTANCE_MAX", "SERIES_BYTES_MAX"])
def test_bytes_of_series_are_limited_and_free_again_with_their_client(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(client_telemetry, limit, 1_000)
    points = [gauge_point("client.depth", 1.0, queue=f"{number}{'q' * 200}") for number in range(9)]
    for name in ("a", "b"):
        telemetry.pushed(telemetry.subscribed(name), encoded(*points), client_id=name)
        kept = [sample.labels for sample in telemetry.collect() if sample.metric.labels]
        assert [client_id for client_id, *_ in kept] == [name] * 3
        telemetry.clock.advance(3 * INTERVAL_S)
    assert telemetry.count("dropped_total") == 12


def test_labels_are_shortened_by_their_bytes(telemetry: Telemetry) -> None:
    client_id = "é" * 200
    client = telemetry.subscribed(client_id)
    telemetry.pushed(
        client, encoded(gauge_point(LATENCY, 1.0, queue="a" + "\N{GRINNING FACE}" * 100)), client_id=client_id
    )
    [labels] = [sample.labels for sample in telemetry.collect() if sample.metric.labels]
    assert (labels[0], labels[2]) == ("é" * 127, "a" + "\N{GRINNING FACE}" * 63)


def test_terminated_client_is_forgotten_after_a_minute(telemetry: Telemetry) -> None:
    client = telemetry.subscribed()
    telemetry.pushed(client, encoded(delta(CREATIONS, 1)), is_terminating=True)
    telemetry.clock.advance(59.0)
    assert telemetry.pushed(client) is ErrorCode.INVALID_REQUEST
    assert telemetry.values() != {}
    telemetry.clock.advance(1.0)
    assert telemetry.values() == {}
    telemetry.subscribed("other")
    assert telemetry.count("instance_count") == 1


def test_terminated_clients_are_forgotten_first_then_those_without_series(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_telemetry, "INSTANCES_MAX", 3)
    for name in ("old", "ended"):
        content = encoded(delta(CREATIONS, 1))
        telemetry.pushed(telemetry.subscribed(name), content, client_id=name, is_terminating=name == "ended")
    silent = telemetry.subscribed("silent")
    telemetry.subscribed("x")
    assert {client_id for _, client_id in telemetry.values()} == {"old"}
    assert telemetry.subscribe(silent.client_instance_id, "silent").error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    for _ in range(10):
        telemetry.subscribed("x")
    assert {client_id for _, client_id in telemetry.values()} == {"old"}
    assert telemetry.subscribe(silent.client_instance_id, "silent").error is ErrorCode.NONE


def test_client_that_is_forgotten_while_it_pushes_leaves_nothing(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_telemetry, "INSTANCES_MAX", 1)
    monkeypatch.setattr(client_telemetry, "SERIES_MAX", 2)
    slow = telemetry.subscribed("slow")
    content = encoded(gauge_point("a", 1.0), gauge_point("b", 1.0))
    steps = telemetry.push(
        slow.client_instance_id, "slow", slow.subscription_id, Compression.NONE, content, is_terminating=False
    )
    next(steps)
    quick = telemetry.subscribed("quick")
    assert {*steps} == {None}
    assert telemetry.values() == {}
    telemetry.pushed(quick, content, client_id="quick")
    assert {client_id for _, client_id in telemetry.values()} == {"quick"}
    assert len(telemetry.values()) == 2


def test_forgotten_series_make_room(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_telemetry, "SERIES_MAX", 1)
    for name in ("a", "b"):
        telemetry.pushed(telemetry.subscribed(name), encoded(delta(CREATIONS, 1)), client_id=name)
        telemetry.clock.advance(3 * INTERVAL_S)
    telemetry.pushed(telemetry.subscribed("c"), encoded(delta(CREATIONS, 1)), client_id="c")
    assert [client_id for _, client_id in telemetry.values()] == ["c"]


# --- what Prometheus gets -----------------------------------------------------------------------------------


def parsed(telemetry: Telemetry) -> dict[str, list[tuple[dict[str, str], float]]]:
    text = exposition(telemetry.collect()).decode()
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


def test_exposition_has_client_id_instance_and_attributes(telemetry: Telemetry) -> None:
    client = telemetry.subscribed()
    telemetry.pushed(client, encoded(gauge_point(LATENCY, 2.5, **{"node.id": "7"})))
    [(labels, value)] = parsed(telemetry)["org_apache_kafka_producer_node_request_latency_avg"]
    instance_id = str(uuid.UUID(bytes=client.client_instance_id))
    assert labels == {"client_id": "web", "client_instance_id": instance_id, "node_id": "7"}
    assert value == 2.5


def test_clients_with_different_labels_share_one_family(telemetry: Telemetry) -> None:
    telemetry.pushed(telemetry.subscribed(), encoded(gauge_point(LATENCY, 1.0, node_id="7")))
    telemetry.pushed(telemetry.subscribed(), encoded(gauge_point(LATENCY, 2.0, rack="a")))
    samples = parsed(telemetry)["org_apache_kafka_producer_node_request_latency_avg"]
    assert [(labels["node_id"], labels["rack"]) for labels, _ in samples] == [("7", ""), ("", "a")]


def hostile_points() -> Iterable[Point]:
    for name in ("", '"', "kafka_brokers", "x.total", "x_total", "ü", "a b", "9", "x" * 300, "le"):
        for label in ("", "__name__", "client_id", "client_instance_id", "1", 'a"b', "é", "z" * 300):
            yield Point(name, is_counter=False, is_delta=False, value=1.0, attributes=((label, '\n"\\' * 100),))
    for number in range(100):
        yield gauge_point("many.labels", float(number), **{f"label_{number}": str(number)})


def test_hostile_names_and_labels_give_an_exposition_that_prometheus_reads(telemetry: Telemetry) -> None:
    client_id = '\n"\\' * 1_000
    client = telemetry.subscribed(client_id)
    assert telemetry.pushed(client, encoded(*hostile_points()), client_id=client_id) is ErrorCode.NONE
    families = parsed(telemetry)
    pushed = {name: samples for name, samples in families.items() if "client_id" in (samples[0][0] if samples else {})}
    assert len(pushed) > 5
    assert all(name.startswith("client_") for name in pushed)
    for samples in pushed.values():
        series = [tuple(sorted(labels.items())) for labels, _ in samples]
        assert len(series) == len(set(series))
        assert all(len(labels) <= client_telemetry.LABELS_MAX + 2 for labels, _ in samples)
        assert all(len(value.encode()) <= 255 for labels, _ in samples for value in labels.values())


@pytest.mark.parametrize("name", ["org.apache.kafka.x.total", "org.apache.kafka.x"])
def test_counters_end_with_total(name: str) -> None:
    assert prometheus_name(name, is_counter=True) == "org_apache_kafka_x_total"


def test_clients_without_an_id_have_an_empty_label(telemetry: Telemetry) -> None:
    client = telemetry.subscribe(bytes(16), None)
    telemetry.pushed(client, encoded(delta(CREATIONS, 1)), client_id=None)
    assert [client_id for _, client_id in telemetry.values()] == [""]


# --- the APIs -----------------------------------------------------------------------------------------------


def test_broker_answers_subscriptions_and_pushes(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        asked = await caller.call(GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)))
        assert (asked.error_code, asked.push_interval_ms, asked.telemetry_max_bytes) == (0, 60_000, 5_000)
        assert asked.accepted_compression_types == [4, 3, 1, 2]
        assert asked.requested_metrics == ["org.apache.kafka.", "app."]
        assert asked.delta_temporality

        def push(content: bytes, **changed: Any) -> PushTelemetryRequest:
            given = {
                "client_instance_id": asked.client_instance_id,
                "subscription_id": asked.subscription_id,
                "terminating": False,
                "compression_type": int(Compression.GZIP),
                "metrics": compress(Compression.GZIP, content),
            }
            return PushTelemetryRequest(**{**given, **changed})

        assert (await caller.call(push(encoded(delta(CREATIONS, 5))))).error_code == ErrorCode.NONE
        early = await caller.call(push(b""))
        assert early.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        last = await caller.call(push(b"", terminating=True, metrics=bytes(5_001)))
        assert last.error_code == ErrorCode.TELEMETRY_TOO_LARGE
        samples = {each.metric.name: each for each in caller.broker.telemetry.collect()}
        sample = samples["org_apache_kafka_producer_connection_creation_total"]
        assert (sample.value, sample.labels[0]) == (5.0, "me")

    run_with_broker(
        tmp_path,
        scenario,
        telemetry_metrics="org.apache.kafka., app.",
        telemetry_interval_ms=60_000,
        telemetry_max_bytes=5_000,
    )


@pytest.mark.parametrize(
    ("is_installed", "metrics", "with_status", "keys"),
    [(True, "*", True, {71, 72}), (False, "*", True, set()), (True, " ", True, set()), (True, "*", False, set())],
)
def test_apis_are_advertised_with_the_extra_a_page_and_wanted_metrics_only(
    tmp_path: Path, is_installed: bool, metrics: str, with_status: bool, keys: set[int]
) -> None:
    async def scenario() -> None:
        config = BrokerConfig(port=0, data=str(tmp_path), telemetry_metrics=metrics)
        caller = Caller(tmp_path)
        environment = Environment(decodes_otlp=lambda: is_installed)
        caller.broker = Broker(config, environment, with_status=with_status)
        await caller.broker.start()
        try:
            answer = await caller.call(ApiVersionsRequest())
            assert {each.api_key for each in answer.api_keys} & {71, 72} == keys
        finally:
            await caller.broker.stop()

    asyncio.run(scenario())


def test_broker_imports_the_decoder_at_its_start_and_serves_without_these_apis_if_that_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise TypeError("Descriptors cannot be created directly.")

    async def scenario() -> None:
        caller = Caller(tmp_path)
        config = BrokerConfig(port=0, data=str(tmp_path))
        caller.broker = Broker(config, Environment(load_otlp=fail), with_status=True)
        await caller.broker.start()
        try:
            answer = await caller.call(ApiVersionsRequest())
            assert not {each.api_key for each in answer.api_keys} & {71, 72}
        finally:
            await caller.broker.stop()

    asyncio.run(scenario())
    [line] = [each.getMessage() for each in caplog.records if "OpenTelemetry" in each.getMessage()]
    assert "Descriptors cannot be created directly." in line


def test_standard_metrics_are_those_that_our_clients_have() -> None:
    prefixes = requested_metrics(BrokerConfig().telemetry_metrics)
    names = {PRODUCER + name for name in REQUIRED_OF_PRODUCERS} | {CONSUMER + name for name in REQUIRED_OF_CONSUMERS}
    assert {name for name in names if not name.startswith(prefixes)} == set()
    assert {prefix for prefix in prefixes if not any(name.startswith(prefix) for name in names)} == set()


@pytest.mark.parametrize(("setting", "prefixes"), [("a.,*,b.", ("*",)), (" a. , a.,,b. ", ("a.", "b.")), (" ", ())])
def test_setting_names_prefixes(setting: str, prefixes: tuple[str, ...]) -> None:
    assert requested_metrics(setting) == prefixes


@pytest.mark.parametrize(
    ("name", "value"),
    [("telemetry_interval_ms", 99), ("telemetry_interval_ms", 3_600_001), ("telemetry_max_bytes", 4_194_305)],
)
def test_settings_outside_their_range_are_refused(name: str, value: int) -> None:
    with pytest.raises(ConfigurationError, match="must be from"):
        BrokerConfig(**{name: value})
