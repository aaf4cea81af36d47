"""Pushes the metrics of a producer or consumer to the brokers, if the brokers request them (KIP-714).

A client requests the metrics subscription some time after its first connection, so that short-lived clients need no
such request. It pushes over an open connection; if there is none, it skips the push. Errors of a push do not reach the
application; they are logged at level DEBUG.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from barnabas.client.cluster import Channel, Cluster
from barnabas.client.interceptors import ClientContext, ConsumerInterceptor, ProducerInterceptor
from barnabas.errors import BarnabasError, ErrorCode, UnsupportedVersionError
from barnabas.metrics import otlp
from barnabas.metrics.otlp import Attributes, Point
from barnabas.records.compression import Compression, compress
from barnabas.shielded import completed

if TYPE_CHECKING:
    from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse

log = logging.getLogger(__name__)

FIRST_ASKED_S = 1.0
"""The time in seconds between the first connection and the request for the metrics subscription."""

ASKED_AGAIN_S = 300.0
"""The time in seconds after which a client requests the subscription again, if no connected broker supports the API or
responds.
"""

TERMINATING_S_MAX = 1.0
"""The time limit in seconds of the last push, when the client is closed."""

PUSH_INTERVAL_S_MIN = 0.1
"""The minimum push interval in seconds. Kafka's brokers have the same minimum."""

PUSH_INTERVAL_S_DEFAULT = 300.0
"""The push interval in seconds if the broker returns 0 or less. The value is Kafka's default."""

JITTER = 0.5, 1.5
"""The minimum and maximum delay of the first push, as fractions of the interval. The delay is random, so that clients
that start together do not push at the same time.
"""

ALL_METRICS = frozenset({"*", ""})
"""The metric names that request all metrics. Kafka's brokers send `*`; KIP-714 defines the empty name."""

COMPRESSIONS = frozenset(Compression) - {Compression.NONE}

_ASK_AGAIN = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_PUSH_LATER = frozenset({ErrorCode.NONE, ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
_NO_ID = bytes(16)


class MetricsPush:
    """The pushes of one client. All methods run on the client's event loop.

    :param chance: returns a number in [0, 1).
    :param first_asked_s: see `FIRST_ASKED_S`.
    """

    def __init__(self, chance: Callable[[], float], first_asked_s: float = FIRST_ASKED_S) -> None:
        self._chance = chance
        self._first_asked_s = first_asked_s
        self._context: ClientContext | None = None
        self._connected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pushing: asyncio.Task[ErrorCode] | None = None
        """The task of the last push, which may still wait for its response."""
        self._client_instance_id = _NO_ID
        self._subscription: GetTelemetrySubscriptionsResponse | None = None
        self._began_ns = 0
        self._pushed: dict[tuple[str, Attributes], float] = {}
        """The values of the counters in the last push that a broker accepted."""

    def start(self, context: ClientContext) -> None:
        """Start to wait for the first connection."""
        self._context = context
        self._began_ns = context.clock.time_ms() * 1_000_000
        context.cluster.updated.append(lambda _view: self._connected.set())
        self._task = asyncio.create_task(self._run(context))

    async def close(self, timeout_s: float | None) -> None:
        """Stop the pushes after a last one, if a broker has requested metrics. The time limit is
        `TERMINATING_S_MAX`.
        """
        if self._task is None or self._context is None:
            return
        self._task.cancel()
        await asyncio.wait({self._task})
        if self._subscription is None:
            return
        limit_s = TERMINATING_S_MAX if timeout_s is None else min(timeout_s, TERMINATING_S_MAX)
        try:
            async with asyncio.timeout(limit_s):
                if self._pushing is not None:
                    with suppress(BarnabasError):
                        # wait for the push in flight: otherwise the last push could report the same increase of
                        # counters again
                        await self._pushing
                await self._push(self._context, self._subscription, is_terminating=True)
        except (BarnabasError, TimeoutError) as error:
            log.debug("the last metrics push failed: %s", error)

    async def _run(self, context: ClientContext) -> None:
        try:
            await self._connected.wait()
            await asyncio.sleep(self._first_asked_s)
            while await self._ask(context) and await self._push_until_unknown(context):
                pass
        except Exception as error:  # noqa: BLE001 - a defect in the metrics must not affect the application
            log.debug("the client stops pushing metrics because of a defect: %r", error)
        self._subscription = None

    async def _ask(self, context: ClientContext) -> bool:
        """Request a metrics subscription. Return False if the client must never push metrics."""
        # Import the messages here: most clients end before this point, and the import takes time.
        from barnabas.protocol.messages.get_telemetry_subscriptions import (  # noqa: PLC0415
            GetTelemetrySubscriptionsRequest,
        )

        while True:
            request = GetTelemetrySubscriptionsRequest(client_instance_id=self._client_instance_id)
            try:
                response: GetTelemetrySubscriptionsResponse | None = await self._send(context.cluster, request)
            except BarnabasError as error:
                log.debug("cannot get the metrics subscription: %s", error)
                response = None
            if response is None:
                await asyncio.sleep(ASKED_AGAIN_S)
                continue
            code = ErrorCode.of(response.error_code)
            if code is ErrorCode.NONE:
                if any(response.client_instance_id):
                    self._client_instance_id = response.client_instance_id
                self._subscription = None
                if response.requested_metrics:
                    await _in_thread(otlp.load)
                    self._subscription = response
                    return True
                await asyncio.sleep(_interval_s(response.push_interval_ms))
            elif code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                await asyncio.sleep(ASKED_AGAIN_S)
            else:
                log.debug("the client pushes no metrics: a broker returned %s", code.name)
                return False

    async def _push_until_unknown(self, context: ClientContext) -> bool:
        """Push at each interval until a broker rejects the subscription. Return whether the client must request a new
        subscription.
        """
        subscription = self._subscription
        assert subscription is not None
        interval_s = _interval_s(subscription.push_interval_ms)
        shortest, longest = JITTER
        await asyncio.sleep(interval_s * (shortest + (longest - shortest) * self._chance()))
        while True:
            try:
                self._pushing = asyncio.create_task(self._push(context, subscription, is_terminating=False))
                code = await completed(self._pushing, is_shared=True)
            except BarnabasError as error:
                log.debug("a metrics push failed: %s; the next push includes its counts", error)
                code = ErrorCode.NONE
            if code not in _PUSH_LATER:
                log.debug("a broker rejected a metrics push: %s", code.name)
                return code in _ASK_AGAIN
            await asyncio.sleep(interval_s)

    async def _push(
        self, context: ClientContext, subscription: GetTelemetrySubscriptionsResponse, *, is_terminating: bool
    ) -> ErrorCode:
        from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest  # noqa: PLC0415

        found = [each for each in context.standard_metrics() if _is_wanted(each.name, subscription.requested_metrics)]
        now_ns = context.clock.time_ms() * 1_000_000
        points = [self._since_last_push(each) for each in found] if subscription.delta_temporality else found
        resource = {} if context.group is None else {"group_id": context.group}
        content = otlp.encode_metrics(points, resource, self._began_ns, now_ns)
        compression = _compression(subscription.accepted_compression_types)
        request = PushTelemetryRequest(
            client_instance_id=self._client_instance_id,
            subscription_id=subscription.subscription_id,
            terminating=is_terminating,
            compression_type=compression,
            metrics=compress(compression, content),
        )
        response = await self._send(context.cluster, request)
        if response is None:
            return ErrorCode.NONE
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            self._pushed = {(each.name, each.attributes): each.value for each in found if each.is_counter}
            if subscription.delta_temporality:
                self._began_ns = now_ns
        return code

    def _since_last_push(self, point: Point) -> Point:
        if not point.is_counter:
            return point
        before = self._pushed.get((point.name, point.attributes), 0.0)
        return point._replace(is_delta=True, value=point.value - before)

    async def _send(self, cluster: Cluster, request: object) -> Any:
        """Send a request over an open connection to a broker that supports the API; return None if there is no such
        connection.
        """
        channel = _channel_for(cluster.open_channels(), type(request))
        return None if channel is None else await cluster.ask(channel, request)


class ProducerMetricsPush(ProducerInterceptor):
    """Pushes the metrics of a producer."""

    def __init__(self, push: MetricsPush) -> None:
        self._push = push

    def start(self, context: ClientContext) -> None:
        self._push.start(context)

    async def close(self, timeout_s: float | None) -> None:
        await self._push.close(timeout_s)


class ConsumerMetricsPush(ConsumerInterceptor):
    """Pushes the metrics of a consumer."""

    def __init__(self, push: MetricsPush) -> None:
        self._push = push

    def start(self, context: ClientContext) -> None:
        self._push.start(context)

    async def close(self, timeout_s: float | None) -> None:
        await self._push.close(timeout_s)


def _interval_s(push_interval_ms: int) -> float:
    return max(PUSH_INTERVAL_S_MIN, push_interval_ms / 1000) if push_interval_ms > 0 else PUSH_INTERVAL_S_DEFAULT


def _is_wanted(name: str, requested: Sequence[str]) -> bool:
    return (len(requested) == 1 and requested[0] in ALL_METRICS) or any(map(name.startswith, requested))


def _compression(accepted: Sequence[int]) -> Compression:
    """Return the first compression type that both sides support."""
    return next((Compression(each) for each in accepted if each in COMPRESSIONS), Compression.NONE)


def _channel_for(channels: Iterator[Channel], request: type) -> Channel | None:
    for channel in channels:
        with suppress(UnsupportedVersionError):
            channel.version_for(request)
            return channel
    return None


async def _in_thread(function: Callable[[], object]) -> None:
    """Run a function in a new thread, because the threads of an executor would outlive the client."""
    done: concurrent.futures.Future[None] = concurrent.futures.Future()

    def run() -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            function()
        except Exception as error:  # noqa: BLE001 - the caller that awaits the future raises the exception
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="barnabas-otlp", daemon=True).start()
    await asyncio.wrap_future(done)
