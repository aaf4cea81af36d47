"""A client's pushes of its metrics: when it asks, what it pushes, and what it does about each answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from typing import Any, cast

import pytest

from barnabas.client.interceptors import ClientContext, ProducerInterceptor, ProducerInterceptors
from barnabas.client.metrics_push import (
    FIRST_ASKED_S,
    ConsumerMetricsPush,
    MetricsPush,
    ProducerMetricsPush,
)
from barnabas.clock import ManualClock
from barnabas.errors import DisconnectedError, ErrorCode, UnsupportedVersionError
from barnabas.metrics.otlp import MetricsReader, Point
from barnabas.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas.records.compression import Compression, decompress
from tests.simulation.loop import SimulatedLoop

ID = bytes(15) + b"\x07"
INTERVAL_S = 60.0
CREATIONS = "org.apache.kafka.producer.connection.creation.total"
LATENCY = "org.apache.kafka.producer.node.request.latency.avg"


class FakeChannel:
    def __init__(self, *, has_api: bool = True) -> None:
        self._has_api = has_api

    def version_for(self, request: type[Any]) -> int:
        if not self._has_api:
            raise UnsupportedVersionError(f"{request.__name__} is not served")
        return 0


class FakeCluster:
    """Brokers that answer what a test gives them."""

    def __init__(self) -> None:
        self.updated: list[Callable[[object], None]] = []
        self.channels: list[FakeChannel] = [FakeChannel()]
        self.asked: list[tuple[float, object]] = []
        self.subscription: dict[str, Any] = {}
        self.push_codes: list[ErrorCode] = []
        self.failure: Exception | None = None
        self.never_answers = False
        self.answer_s = 0.0

    def open_channels(self) -> Iterator[FakeChannel]:
        return iter(self.channels)

    async def ask(self, _channel: FakeChannel, request: object) -> object:
        self.asked.append((asyncio.get_running_loop().time(), request))
        await asyncio.sleep(self.answer_s)
        if self.never_answers:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        if isinstance(request, PushTelemetryRequest):
            code = self.push_codes.pop(0) if self.push_codes else ErrorCode.NONE
            return PushTelemetryResponse(error_code=code)
        given: dict[str, Any] = {
            "error_code": 0,
            "client_instance_id": ID,
            "subscription_id": 5,
            "accepted_compression_types": [4, 3, 1, 2],
            "push_interval_ms": int(INTERVAL_S * 1000),
            "telemetry_max_bytes": 1_000_000,
            "delta_temporality": True,
            "requested_metrics": ["*"],
        }
        return GetTelemetrySubscriptionsResponse(**{**given, **self.subscription})

    def of(self, kind: type) -> list[Any]:
        return [request for _, request in self.asked if type(request) is kind]

    @property
    def pushes(self) -> list[PushTelemetryRequest]:
        return self.of(PushTelemetryRequest)


class Client:
    """A push on a loop in virtual time, with metrics that a test sets."""

    def __init__(self, cluster: FakeCluster, group: str | None = None) -> None:
        self.cluster = cluster
        self.metrics = [point(CREATIONS, 2.0, is_counter=True), point(LATENCY, 1.5)]
        self.push = MetricsPush(lambda: 0.5)
        self.context = ClientContext(
            client_id="web",
            group=group,
            request_timeout_ms=1_000,
            clock=ManualClock(),
            cluster=cast("Any", cluster),
            locked=nullcontext,
            positions=dict,
            standard_metrics=lambda: self.metrics,
        )

    def connect(self) -> None:
        self.push.start(self.context)
        for listener in self.cluster.updated:
            listener(None)


def point(name: str, value: float, *, is_counter: bool = False) -> Point:
    return Point(name, is_counter=is_counter, is_delta=False, value=value)


def pushed(request: PushTelemetryRequest) -> dict[str, Point]:
    content = decompress(Compression(request.compression_type), request.metrics)
    return {each.name: each for each in MetricsReader(content, ["group_id"]) if each is not None}


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture(autouse=True)
def _without_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time does not wait for threads."""

    async def at_once(function: Callable[[], object]) -> None:
        function()

    monkeypatch.setattr("barnabas.client.metrics_push._in_thread", at_once)


def run(scenario: Awaitable[None]) -> None:
    loop = SimulatedLoop()
    try:
        loop.run_until_complete(scenario)
    finally:
        loop.close()


def test_client_asks_after_its_first_connection_and_pushes_at_the_interval(cluster: FakeCluster) -> None:
    async def scenario() -> None:
        client = Client(cluster)
        client.push.start(client.context)
        await asyncio.sleep(1_000)
        assert cluster.asked == []
        started_s = asyncio.get_running_loop().time()
        client.cluster.updated[0](None)
        await asyncio.sleep(FIRST_ASKED_S + 2.5 * INTERVAL_S)
        assert [type(request) for _, request in cluster.asked] == [
            GetTelemetrySubscriptionsRequest, PushTelemetryRequest, PushTelemetryRequest
        ]  # fmt: skip
        first_s = FIRST_ASKED_S + INTERVAL_S
        expected = [FIRST_ASKED_S, first_s, first_s + INTERVAL_S]
        assert [at_s - started_s for at_s, _ in cluster.asked] == pytest.approx(expected)
        await client.push.close(None)

    run(scenario())


def test_push_has_the_ids_and_the_preferred_compression(cluster: FakeCluster) -> None:
    async def scenario() -> None:
        client = Client(cluster, group="ctr")
        client.connect()
        await asyncio.sleep(1.5 * INTERVAL_S)
        [push] = cluster.pushes
        assert (push.client_instance_id, push.subscription_id, push.terminating) == (ID, 5, False)
        assert push.compression_type == Compression.ZSTD
        assert pushed(push)[LATENCY] == point(LATENCY, 1.5)._replace(attributes=(("group_id", "ctr"),))
        await client.push.close(None)

    run(scenario())


def test_counters_are_pushed_as_growth_since_the_last_push_that_was_taken(cluster: FakeCluster) -> None:
    cluster.push_codes = [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NONE]

    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(1.5 * INTERVAL_S)
        for value in (5.0, 6.0):
            client.metrics = [point(CREATIONS, value, is_counter=True)]
            await asyncio.sleep(INTERVAL_S)
        points = [pushed(each)[CREATIONS] for each in cluster.pushes]
        assert [(each.value, each.is_delta) for each in points] == [(2.0, True), (3.0, True), (4.0, True)]
        await client.push.close(None)

    run(scenario())


def test_counters_are_pushed_as_sums_where_the_broker_wants_that(cluster: FakeCluster) -> None:
    cluster.subscription = {"delta_temporality": False}

    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(2.5 * INTERVAL_S)
        points = [pushed(each)[CREATIONS] for each in cluster.pushes]
        assert [(each.value, each.is_delta) for each in points] == [(2.0, False), (2.0, False)]
        await client.push.close(None)

    run(scenario())


@pytest.mark.parametrize(
    ("requested", "names"),
    [
        (["*"], {CREATIONS, LATENCY}),
        ([""], {CREATIONS, LATENCY}),
        (["org.apache.kafka.producer.node.", "x"], {LATENCY}),
        (["x"], set()),
    ],
)
def test_metrics_are_chosen_by_prefix(cluster: FakeCluster, requested: list[str], names: set[str]) -> None:
    cluster.subscription = {"requested_metrics": requested}

    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(1.5 * INTERVAL_S)
        assert set(pushed(cluster.pushes[0])) == names
        await client.push.close(None)

    run(scenario())


def test_client_that_is_asked_for_no_metrics_pushes_none_and_asks_again(cluster: FakeCluster) -> None:
    cluster.subscription = {"requested_metrics": []}

    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(1.5 * INTERVAL_S)
        assert [type(request) for _, request in cluster.asked] == 2 * [GetTelemetrySubscriptionsRequest]
        await client.push.close(None)
        assert cluster.pushes == []

    run(scenario())


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])
def test_client_asks_again_with_its_id_where_the_broker_does_not_know_the_subscription(
    cluster: FakeCluster, code: ErrorCode
) -> None:
    cluster.push_codes = [code]

    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(2.5 * INTERVAL_S)
        asked = cluster.of(GetTelemetrySubscriptionsRequest)
        assert [each.client_instance_id for each in asked] == [bytes(16), ID]
        assert len(cluster.pushes) == 2
        await client.push.close(None)

    run(scenario())


@pytest.mark.parametrize("code", [ErrorCode.INVALID_RECORD, ErrorCode.INVALID_REQUEST])
def test_client_pushes_no_more_after_an_error_that_will_not_pass(cluster: FakeCluster, code: ErrorCode) -> None:
    cluster.push_codes = [code]

    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(20 * INTERVAL_S)
        await client.push.close(None)
        assert len(cluster.pushes) == 1

    run(scenario())


def test_no_push_without_an_open_connection_to_a_broker_with_the_api(cluster: FakeCluster) -> None:
    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(1.5 * INTERVAL_S)
        cluster.channels = []
        await asyncio.sleep(INTERVAL_S)
        cluster.channels = [FakeChannel(has_api=False)]
        await asyncio.sleep(INTERVAL_S)
        assert len(cluster.pushes) == 1
        cluster.channels.append(FakeChannel())
        await asyncio.sleep(INTERVAL_S)
        assert len(cluster.pushes) == 2
        await client.push.close(None)

    run(scenario())


def test_broker_without_the_api_is_asked_nothing(cluster: FakeCluster) -> None:
    cluster.channels = [FakeChannel(has_api=False)]

    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(10_000)
        await client.push.close(None)
        assert cluster.asked == []

    run(scenario())


def test_failed_push_is_tried_at_the_next_interval(cluster: FakeCluster) -> None:
    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(1.5 * INTERVAL_S)
        cluster.failure = DisconnectedError("gone")
        await asyncio.sleep(INTERVAL_S)
        cluster.failure = None
        await asyncio.sleep(INTERVAL_S)
        assert len(cluster.pushes) == 3
        await client.push.close(None)

    run(scenario())


def test_last_push_counts_nothing_that_a_push_before_it_has_counted(cluster: FakeCluster) -> None:
    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(FIRST_ASKED_S + 0.5 * INTERVAL_S)
        cluster.answer_s = 0.5
        await asyncio.sleep(0.5 * INTERVAL_S + 0.1)  # the push has come, and its answer has not
        await client.push.close(None)
        assert [(each.terminating, pushed(each)[CREATIONS].value) for each in cluster.pushes] == [
            (False, 2.0),
            (True, 0.0),
        ]

    run(scenario())


def test_decoder_is_loaded_only_where_a_broker_asks_for_metrics(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[bool] = []
    monkeypatch.setattr("barnabas.metrics.otlp.load", lambda: loads.append(True))
    cluster.subscription = {"requested_metrics": []}

    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(1.5 * INTERVAL_S)
        assert loads == []
        cluster.subscription = {}
        await asyncio.sleep(INTERVAL_S)
        assert loads == [True]
        await client.push.close(None)

    run(scenario())


def test_last_push_at_the_end_is_terminating(cluster: FakeCluster) -> None:
    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(FIRST_ASKED_S + 0.1)
        await client.push.close(None)
        [push] = cluster.pushes
        assert push.terminating
        assert pushed(push)[CREATIONS].value == 2.0
        await asyncio.sleep(10 * INTERVAL_S)
        assert len(cluster.pushes) == 1

    run(scenario())


@pytest.mark.parametrize(("timeout_s", "limit_s"), [(None, 1.0), (0.2, 0.2), (30.0, 1.0), (0.0, 0.0)])
def test_end_does_not_wait_long_for_the_last_push(
    cluster: FakeCluster, timeout_s: float | None, limit_s: float
) -> None:
    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(FIRST_ASKED_S + 0.1)
        cluster.never_answers = True
        began_s = asyncio.get_running_loop().time()
        await client.push.close(timeout_s)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(limit_s)

    run(scenario())


def test_push_at_the_end_gets_the_time_that_other_interceptors_leave(cluster: FakeCluster) -> None:
    class Slow(ProducerInterceptor):
        async def close(self, timeout_s: float | None) -> None:
            await asyncio.sleep(1.7)

    async def scenario() -> None:
        client = Client(cluster)
        every = ProducerInterceptors([Slow(), ProducerMetricsPush(client.push)])
        await every.start(client.context)
        for listener in cluster.updated:
            listener(None)
        await asyncio.sleep(FIRST_ASKED_S + 0.1)
        cluster.never_answers = True
        began_s = asyncio.get_running_loop().time()
        await every.close(2.0)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(2.0)
        assert [push.terminating for push in cluster.pushes] == [True]

    run(scenario())


def test_end_fails_with_no_error_of_a_push(cluster: FakeCluster) -> None:
    async def scenario() -> None:
        client = Client(cluster)
        client.connect()
        await asyncio.sleep(FIRST_ASKED_S + 0.1)
        cluster.failure = DisconnectedError("gone")
        await client.push.close(None)

    run(scenario())


def test_client_that_never_connected_ends_at_once(cluster: FakeCluster) -> None:
    async def scenario() -> None:
        client = Client(cluster)
        client.push.start(client.context)
        await client.push.close(None)
        assert cluster.asked == []

    run(scenario())


@pytest.mark.parametrize("interceptor", [ProducerMetricsPush, ConsumerMetricsPush])
def test_interceptors_begin_and_end_the_pushes(cluster: FakeCluster, interceptor: type[ProducerMetricsPush]) -> None:
    async def scenario() -> None:
        client = Client(cluster)
        own = interceptor(client.push)
        own.start(client.context)
        cluster.updated[0](None)
        await asyncio.sleep(FIRST_ASKED_S + 0.1)
        await own.close(None)
        assert [each.terminating for each in cluster.pushes] == [True]

    run(scenario())


@pytest.mark.parametrize(("push_interval_ms", "interval_s"), [(0, 300.0), (-1, 300.0), (1, 0.1), (60_000, 60.0)])
def test_interval_has_a_default_and_a_lower_bound(
    cluster: FakeCluster, push_interval_ms: int, interval_s: float
) -> None:
    cluster.subscription = {"push_interval_ms": push_interval_ms}
    client = Client(cluster)

    async def scenario() -> None:
        client.connect()
        await asyncio.sleep(FIRST_ASKED_S + 2.5 * interval_s)
        assert len(cluster.pushes) == 2
        await client.push.close(0.0)

    run(scenario())
