"""The enforcement of quotas: the stage that throttles clients, and the quota of changes of topics.

If a client exceeds a quota, the broker responds at once with the time that the client must wait, and reads nothing from
its connection during this time (KIP-219). The response to a Fetch request contains its records. Kafka leaves them out,
so that the client fetches them again. One fetch returns at most the bytes of all full windows of its quota.

A quota of a user applies to all its connections on this broker together. Clients that authenticate as the same user
with the same client id, or share a quota by its entity, share one rate. Rates that nobody uses are dropped.

Brokers are not throttled, because their listeners have no such stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, MutableSequence
from typing import Any, NamedTuple

from barnabas.broker.pipeline.call import Call, ConnectionState, RequestTimer, RunCall, Steps, is_pause_due
from barnabas.broker.pipeline.chain import Stage
from barnabas.broker.pipeline.scheduler import RequestPipeline
from barnabas.broker.quotas.entities import (
    CLIENT_ID_CHARACTERS_MAX,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from barnabas.broker.quotas.limits import Limit, QuotaLimits
from barnabas.broker.settings.static import BrokerConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.rates import TokenBucket, WindowedRate, Windows, throttle_ms
from barnabas.security.principal import ANONYMOUS

PRODUCE, FETCH = 0, 1
NOT_MEASURED = frozenset({17, 18, 36})
"""The keys of the APIs whose time does not count, because the client is not authenticated yet."""
SENSORS_MAX = 10_000
"""The maximum number of rates. Above it, those that nobody uses are dropped, and then the oldest ones."""
FETCH_PARTITION_BYTES = 64
"""The approximate size of a partition in a Fetch response without its records."""
LAST_FLEXIBLE_BYTES = 1
"""The size of the empty tagged fields after `throttle_time_ms`."""
FIRST_FLEXIBLE_PRODUCE = 9

_STAGED = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE})


class _Sensor:
    """The rate of the clients that share a limit."""

    __slots__ = ("limit", "rate")

    def __init__(self, limit: float, windows: Windows) -> None:
        self.limit = limit
        self.rate = WindowedRate(windows)

    def throttle_s(self, amount: float, now_s: float) -> float:
        """Count an amount; return the time for which the client must wait."""
        self.rate.note(amount, now_s)
        return self.rate.throttle_s(self.limit, now_s)

    def is_idle(self, now_s: float) -> bool:
        return self.rate.is_idle(now_s)


class _ClientSensors(NamedTuple):
    """The rates that apply to a client; None without a limit."""

    produce: _Sensor | None
    fetch: _Sensor | None
    request: _Sensor | None


class ThrottleCounts:
    """The number of throttled calls, and the sum of their times, by quota. Any thread may read them."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.total_ms: Counter[str] = Counter()

    def note(self, quota: str, time_ms: int) -> None:
        self.calls[quota] += 1
        self.total_ms[quota] += time_ms


class QuotaStage(Stage):
    """Throttles the clients of all listeners by bytes and by time. Used from the event loop's thread.

    :param windows: the windows of the rates.
    :param now_s: returns monotonic seconds.
    """

    def __init__(self, windows: Windows, now_s: Callable[[], float], counts: ThrottleCounts) -> None:
        self._windows = windows
        self._now_s = now_s
        self._counts = counts
        self._limits = QuotaLimits({})
        self._sensors: dict[tuple[str, str, str], _Sensor] = {}
        self._clients: dict[tuple[str, str], _ClientSensors] = {}
        self._generation = 0

    @property
    def is_needed(self) -> bool:
        """True if any client has a limit."""
        return not _STAGED.isdisjoint(self._limits.keys)

    def put_into_force(self, limits: QuotaLimits) -> None:
        """Apply new limits. What clients have used so far counts towards them."""
        self._limits = limits
        self._clients.clear()
        self._generation += 1

    def passes(self, call: Call, request: Any) -> bool:
        # A frame from a template could not contain the time to wait. Produce responses are an exception: `settle_run`
        # changes their frames.
        del request
        return call.served.key == PRODUCE or self._sensors_of(call).request is None

    def enter(self, call: Call, request: Any) -> Any:
        state, sensors = call.connection, self._sensors_of(call)
        timer = None if sensors.request is None else state.timer
        if sensors.request is not None and (timer is None or timer.generation != self._generation):
            timer = RequestTimer(self._now_s, self._generation)
        state.begin_throttling(timer)
        key = call.served.key
        if key == PRODUCE and sensors.produce is not None:
            throttle_s = sensors.produce.throttle_s(call.size, self._now_s())
            self._throttle(state, throttle_s, PRODUCER_BYTE_RATE)
        elif key == FETCH and sensors.fetch is not None:
            bytes_max = int(min(sensors.fetch.limit * max(self._windows.full_s, self._windows.size_s), 2**31 - 1))
            request.max_bytes = min(request.max_bytes, bytes_max)
        return request

    def settle(self, call: Call, response: Any) -> Any:
        sensors = self._sensors_of(call)
        if call.served.key == FETCH and sensors.fetch is not None:
            return self._settle_fetch(call, response, sensors.fetch)
        self._count_time(call, sensors)
        return _with_time(response, call.connection.throttle_ms)

    def settle_run(self, call: RunCall, responses: MutableSequence[Any]) -> None:
        self._count_time(call, self._sensors_of(call))
        time_ms = call.connection.throttle_ms
        if not time_ms:
            return
        for number, response in enumerate(responses):
            if type(response) is bytes:
                responses[number] = _produce_frame_with_time(response, call.version, time_ms)
            else:
                _with_time(response, time_ms)

    def _settle_fetch(self, call: Call, response: Any, sensor: _Sensor) -> Steps[Any]:
        size = number = 0
        for topic in response.responses:
            for partition in topic.partitions:
                size += len(partition.records or b"") + FETCH_PARTITION_BYTES
                number += 1
                if is_pause_due(number):
                    yield
        self._throttle(call.connection, sensor.throttle_s(size, self._now_s()), CONSUMER_BYTE_RATE)
        self._count_time(call, self._sensors_of(call))
        return _with_time(response, call.connection.throttle_ms)

    def _count_time(self, call: Call, sensors: _ClientSensors) -> None:
        timer = call.connection.timer
        if sensors.request is None or timer is None or call.served.key in NOT_MEASURED:
            return
        throttle_s = sensors.request.throttle_s(100 * timer.take_s(), self._now_s())
        # As in Kafka, at most one window, because a client cannot know the time of its next request.
        self._throttle(call.connection, min(throttle_s, self._windows.size_s), REQUEST_PERCENTAGE)

    def _throttle(self, state: ConnectionState, throttle_s: float, quota: str) -> None:
        time_ms = throttle_ms(throttle_s)
        if time_ms:
            state.throttle(time_ms)
            self._counts.note(quota, time_ms)

    def _sensors_of(self, call: Call) -> _ClientSensors:
        key = call.connection.principal.name, (call.client_id or "")[:CLIENT_ID_CHARACTERS_MAX]
        found = self._clients.get(key)
        if found is None:
            if len(self._clients) >= SENSORS_MAX:
                self._clients.clear()
            found = self._clients[key] = _ClientSensors(
                *(
                    self._sensor(quota, self._limits.of_client(quota, *key))
                    for quota in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
                )
            )
        return found

    def _sensor(self, quota: str, limit: Limit | None) -> _Sensor | None:
        if limit is None:
            return None
        key = quota, limit.user, limit.client_id
        sensor = self._sensors.get(key)
        if sensor is None:
            if make_room(self._sensors, self._now_s()):
                self._clients.clear()  # they refer to sensors that were dropped
            sensor = self._sensors[key] = _Sensor(limit.value, self._windows)
        sensor.limit = limit.value
        return sensor


def make_room(sensors: dict[Any, Any], now_s: float) -> bool:
    """Drop sensors if there are too many: those that nobody uses, and then the oldest ones. Return whether any was."""
    if len(sensors) < SENSORS_MAX:
        return False
    idle = [key for key, sensor in sensors.items() if sensor.is_idle(now_s)]
    for key in idle or list(sensors)[: SENSORS_MAX // 10]:
        del sensors[key]
    return True


def _with_time(response: Any, time_ms: int) -> Any:
    """Set the time that the client must wait, unless the response has no field for it."""
    if time_ms and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = time_ms
    return response


def _produce_frame_with_time(frame: bytes, version: int, time_ms: int) -> bytes:
    """Return a frame of a template with the time that the client must wait. It is the last field since version 1."""
    if version < 1:
        return frame
    end = len(frame) - (LAST_FLEXIBLE_BYTES if version >= FIRST_FLEXIBLE_PRODUCE else 0)
    return frame[: end - 4] + time_ms.to_bytes(4, "big") + frame[end:]


class MutationQuotas:
    """The quotas of changes of topics: the partitions per second that a client creates and deletes (KIP-599).

    :param windows: the windows whose changes a client may make at once.
    :param default_rate: returns the limit of each user, or of each address without a user, that has no quota; 0 for
        none.
    :param now_s: returns monotonic seconds.
    """

    def __init__(
        self,
        windows: Windows,
        default_rate: Callable[[], float],
        now_s: Callable[[], float],
        counts: ThrottleCounts,
    ) -> None:
        self._windows = windows
        self._default_rate = default_rate
        self._now_s = now_s
        self._counts = counts
        self._limits = QuotaLimits({})
        self._buckets: dict[tuple[str, str, str], TokenBucket] = {}

    def put_into_force(self, limits: QuotaLimits) -> None:
        """Apply new limits. Owed tokens stay owed."""
        self._limits = limits

    def of_call(self, call: Call, strict_since: int) -> Mutations:
        """Return the quota of a request.

        :param strict_since: the first version of the API whose changes are refused above the quota. Changes of earlier
            versions are made, and the client waits afterwards.
        """
        return Mutations(self, self._bucket(call), call, is_strict=call.version >= strict_since)

    def take(self, bucket: TokenBucket, count: int, *, is_strict: bool) -> None:
        """Count changed partitions.

        :raises ApiError: THROTTLING_QUOTA_EXCEEDED.
        """
        now_s = self._now_s()
        if is_strict and bucket.throttle_s(now_s):
            message = f"the client changes more partitions than its quota allows ({CONTROLLER_MUTATION_RATE})"
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
        bucket.take(count, now_s)

    def throttle_ms(self, bucket: TokenBucket) -> int:
        """Return the time until the client may make further changes; count it."""
        time_ms = throttle_ms(bucket.throttle_s(self._now_s()))
        if time_ms:
            self._counts.note(CONTROLLER_MUTATION_RATE, time_ms)
        return time_ms

    def _bucket(self, call: Call) -> TokenBucket | None:
        state = call.connection
        user, client_id = state.principal.name, (call.client_id or "")[:CLIENT_ID_CHARACTERS_MAX]
        limit = self._limits.of_client(CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is not None:
            key = limit.user, limit.client_id, ""
        elif default := self._default_rate():
            is_anonymous = state.principal == ANONYMOUS
            limit = Limit(default, user, "")
            key = (user, "", state.host) if is_anonymous else (user, "", "")
        else:
            return None
        bucket, now_s = self._buckets.get(key), self._now_s()
        if bucket is None:
            make_room(self._buckets, now_s)
            bucket = self._buckets[key] = TokenBucket(self._windows, limit.value, now_s)
        bucket.set_limit(limit.value)
        return bucket


class QuotaEnforcement:
    """Enforces all quotas of one broker. Used from the event loop's thread.

    :param config: returns the settings in force.
    :param now_s: returns monotonic seconds.
    """

    def __init__(self, config: Callable[[], BrokerConfig], now_s: Callable[[], float]) -> None:
        static = config()
        self._config = config
        self._limits = QuotaLimits({})
        self._pipelines: list[RequestPipeline] = []
        self.counts = ThrottleCounts()
        windows = Windows(static.quota_window_num, static.quota_window_size_seconds)
        self._stage = QuotaStage(windows, now_s, self.counts)
        self.mutations = MutationQuotas(
            Windows(static.controller_quota_window_num, static.controller_quota_window_size_seconds),
            lambda: config().quota_controller_mutation_default,
            now_s,
            self.counts,
        )

    def put_into_force(self, limits: QuotaLimits) -> None:
        """Apply new limits to all connections."""
        self._limits = limits
        self._stage.put_into_force(limits)
        self.mutations.put_into_force(limits)
        for each in self._pipelines:
            self._attach(each)

    def enforce(self, pipeline: RequestPipeline) -> None:
        """Enforce the quotas on the connections of a listener, from now on."""
        self._pipelines.append(pipeline)
        self._attach(pipeline)

    def connection_rate(self, host: str) -> float | None:
        """Return the maximum number of new connections per second from an address; None for no limit."""
        limit = self._limits.connection_rate(host)
        return (self._config().quota_connection_creation_default or None) if limit is None else limit

    def _attach(self, pipeline: RequestPipeline) -> None:
        pipeline.use_quotas(self._stage if self._stage.is_needed else None)


class Mutations:
    """The changes of topics that one request makes."""

    def __init__(self, quotas: MutationQuotas, bucket: TokenBucket | None, call: Call, *, is_strict: bool) -> None:
        self._quotas = quotas
        self._bucket = bucket
        self._call = call
        self._is_strict = is_strict

    def take(self, partitions: int) -> None:
        """Count the partitions that the request is about to create or delete.

        :raises ApiError: THROTTLING_QUOTA_EXCEEDED.
        """
        if self._bucket is not None:
            self._quotas.take(self._bucket, partitions, is_strict=self._is_strict)

    def end(self, response: Any) -> None:
        """Set the time to wait in the response; read nothing from the client's connection during this time."""
        time_ms = 0 if self._bucket is None else self._quotas.throttle_ms(self._bucket)
        if time_ms:
            response.throttle_time_ms = time_ms
            self._call.connection.throttle(time_ms)
