"""The metrics that clients push to this broker (KIP-714), and the subscriptions that select these metrics.

A client gets an instance id and a subscription id, and pushes metrics at an interval that the broker sets. The broker
keeps the last value of each gauge and the sum of each counter. It removes them after three intervals without a request
of the client, or one minute after the client's terminating push.

Clients choose names, labels and values freely, so the broker limits their number and size. The names begin with
`org_apache_kafka_` or `client_`, so they never collide with the broker's own metrics.
"""

from __future__ import annotations

import enum
import math
import re
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.broker.pipeline.call import Steps, is_pause_due
from barnabas.clock import Clock
from barnabas.errors import CorruptBatchError, ErrorCode, MalformedMessageError
from barnabas.metrics.metric import COUNTER_SUFFIX, Kind, Metric, Sample, counter, gauge
from barnabas.metrics.otlp import Attributes, MetricsReader, Point
from barnabas.records.compression import Compression, DecompressedTooLargeError, decompress

INSTANCES_MAX = 16_384
"""The maximum number of client instances, as in Kafka.

At the maximum, a new instance replaces the first instance in the order of `_Rank`.
"""
SERIES_MAX = 10_000
"""The maximum total number of series of all clients."""
SERIES_PER_INSTANCE_MAX = 1_000
SERIES_BYTES_MAX = 8 * 1024 * 1024
"""The maximum total size of the names and labels of all series in UTF-8 bytes, including the client labels.

It limits the size of the metrics page.
"""
SERIES_BYTES_PER_INSTANCE_MAX = 256 * 1024
LABELS_MAX = 8
"""The maximum number of labels per metric, in addition to the client labels."""
NAME_CHARACTERS_MAX = 200
LABEL_CHARACTERS_MAX = 64
VALUE_BYTES_MAX = 255

SILENCE_S_MIN = 60.0
SILENT_INTERVALS = 3
TERMINATED_S = 60.0
"""The time in seconds between the terminating push of an instance and its removal.

It is long enough for the next scrape.
"""

COMPRESSIONS = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""The compression types of pushes, the preferred one first. A push may also be uncompressed."""

RESOURCE_ATTRIBUTES = ("client_rack", "group_id", "group_instance_id", "transactional_id")
"""The resource attributes in KIP-714 that become labels. The member id is not a label, because it changes often."""

RESERVED_IDS = frozenset({bytes(16), bytes(15) + b"\x01"})
"""The reserved UUIDs that Kafka never assigns to a client."""

STANDARD = "standard"
"""The value of the setting `telemetry.metrics` that requests all of `STANDARD_METRICS`."""
STANDARD_METRICS = (
    "org.apache.kafka.consumer.connection.creation.",
    "org.apache.kafka.consumer.coordinator.assigned.partitions",
    "org.apache.kafka.consumer.coordinator.commit.latency.",
    "org.apache.kafka.consumer.coordinator.rebalance.latency.",
    "org.apache.kafka.consumer.fetch.manager.fetch.latency.",
    "org.apache.kafka.consumer.node.request.latency.",
    "org.apache.kafka.consumer.poll.idle.ratio.",
    "org.apache.kafka.producer.connection.creation.",
    "org.apache.kafka.producer.node.request.latency.",
    "org.apache.kafka.producer.produce.throttle.time.",
    "org.apache.kafka.producer.record.queue.time.",
)
"""The metrics that KIP-714 requires of each client: about 15 series. A Java consumer has 140 series in total."""

OWN_PREFIX, OTHER_PREFIX = "org_apache_kafka_", "client_"
CLIENT_LABELS = ("client_id", "client_instance_id")
HELP = "A metric that clients push (KIP-714)."
_NOT_IN_NAMES = re.compile("[^a-zA-Z0-9_]+")

INSTANCES = gauge("kafka_server_client_metrics_instance_count", "Client instances in the broker's memory.")
PUSHES = counter("kafka_server_client_metrics_plugin_export_count_total", "Accepted metric pushes of clients.")
INVALID_PUSHES = counter(
    "kafka_server_client_metrics_plugin_error_count_total", "Metric pushes of clients that could not be decoded."
)
THROTTLED = counter(
    "kafka_server_client_metrics_throttle_count_total",
    "Telemetry requests of clients before the end of their interval.",
)
UNKNOWN_SUBSCRIPTIONS = counter(
    "kafka_server_client_metrics_unknown_subscription_request_count_total",
    "Metric pushes of clients with an outdated subscription id.",
)
DROPPED = counter(
    "barnabas_client_metrics_dropped_total",
    "Values in pushes that the broker dropped: too many series, too large, or neither a gauge nor a sum.",
)


class Subscription(NamedTuple):
    """The response to a client's subscription request. The ids are zero if there is an error."""

    error: ErrorCode
    client_instance_id: bytes = bytes(16)
    subscription_id: int = 0


def requested_metrics(setting: str) -> tuple[str, ...]:
    """Return the metric name prefixes in the setting `telemetry.metrics`.

    >>> requested_metrics("*"), requested_metrics("org.apache.kafka.consumer., app."), requested_metrics("")
    (('*',), ('org.apache.kafka.consumer.', 'app.'), ())
    """
    names = [name for each in setting.split(",") if (name := each.strip())]
    prefixes = [prefix for name in names for prefix in (STANDARD_METRICS if name == STANDARD else (name,))]
    return ("*",) if "*" in prefixes else tuple(dict.fromkeys(prefixes))


Series = tuple[str, Attributes]
"""The name of a metric and its labels, in the format of Prometheus."""


class _Rank(enum.Enum):
    """The removal rank of a client instance.

    At the instance limit, the broker removes the lowest rank first, and within a rank the oldest instance.
    """

    TERMINATED = enum.auto()
    WITHOUT_SERIES = enum.auto()
    WITH_SERIES = enum.auto()


@dataclass(slots=True)
class _Instance:
    """The state of one client instance."""

    client_id: str
    subscription_id: int
    expires_at_s: float = 0.0
    asked_at_s: float = -math.inf
    pushed_at_s: float = -math.inf
    is_terminated: bool = False
    last_error: ErrorCode = ErrorCode.NONE
    series: dict[Series, float] = field(default_factory=dict)
    series_bytes: int = 0
    rank: _Rank = _Rank.WITHOUT_SERIES


@dataclass(slots=True)
class _Counts:
    pushes: int = 0
    invalid_pushes: int = 0
    throttled: int = 0
    unknown_subscriptions: int = 0
    dropped: int = 0


class ClientTelemetry:
    """The metrics of all clients of this broker.

    Used from the event loop's thread, except `collect`, which any thread may call.

    :param metrics: the name prefixes of the requested metrics. `*` requests all metrics.
    :param interval_ms: the time between two pushes of a client.
    :param bytes_max: the maximum size of a push, compressed and decompressed.
    """

    def __init__(
        self,
        *,
        metrics: Iterable[str],
        interval_ms: int,
        bytes_max: int,
        clock: Clock,
        new_id: Callable[[], uuid.UUID],
    ) -> None:
        self.metrics = tuple(metrics)
        self.interval_ms = interval_ms
        self.bytes_max = bytes_max
        self._clock = clock
        self._new_id = new_id
        self._checksum = zlib.crc32(f"{self.metrics}{interval_ms}".encode())
        self._silence_s = max(SILENCE_S_MIN, SILENT_INTERVALS * interval_ms / 1000)
        self._instances: dict[bytes, _Instance] = {}
        self._ranks: dict[_Rank, OrderedDict[bytes, None]] = {rank: OrderedDict() for rank in _Rank}
        """The instance ids of each rank, ordered by expiry time."""
        self._series_count = 0
        self._series_bytes = 0
        self._counts = _Counts()

    # --- requests ---------------------------------------------------------------------------------------

    def subscribe(self, client_instance_id: bytes, client_id: str | None) -> Subscription:
        """Return the subscription of a client.

        :param client_instance_id: the client's instance id, or all zeros if it does not have one yet.
        """
        if not any(client_instance_id):
            client_instance_id = self._new_instance_id()
        instance = self._instance(client_instance_id, client_id)
        now_s = self._clock.monotonic()
        is_early = now_s - max(instance.asked_at_s, instance.pushed_at_s) < self.interval_ms / 1000
        if is_early and instance.last_error not in _ASKS_AGAIN:
            self._counts.throttled += 1
            return Subscription(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.asked_at_s = now_s
        instance.last_error = ErrorCode.NONE
        return Subscription(ErrorCode.NONE, client_instance_id, instance.subscription_id)

    def push(
        self,
        client_instance_id: bytes,
        client_id: str | None,
        subscription_id: int,
        compression_type: int,
        metrics: bytes,
        *,
        is_terminating: bool,
    ) -> Steps[ErrorCode]:
        """Store the metrics that a client pushed. Return an error or NONE."""
        if client_instance_id in RESERVED_IDS:
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(client_instance_id, client_id)
        error = self._check(instance, subscription_id, compression_type, len(metrics), is_terminating=is_terminating)
        was_terminated = instance.is_terminated
        instance.is_terminated |= is_terminating
        if error is ErrorCode.NONE and metrics:
            points = yield from self._decode(Compression(compression_type), metrics)
            if isinstance(points, ErrorCode):
                error = points
            else:
                yield from self._keep_all(client_instance_id, instance, points)
        instance.last_error = error
        if not was_terminated and self._instances.get(client_instance_id) is instance:
            self._place(client_instance_id, instance)
        return error

    def _check(
        self, instance: _Instance, subscription_id: int, compression_type: int, size: int, *, is_terminating: bool
    ) -> ErrorCode:
        """Check a push before decoding it. Return the error or NONE. The checks have the same order as in Kafka."""
        if instance.is_terminated:
            return ErrorCode.INVALID_REQUEST
        now_s = self._clock.monotonic()
        is_first = instance.asked_at_s > instance.pushed_at_s
        is_early = not is_first and now_s - instance.pushed_at_s < self.interval_ms / 1000
        if is_early and not is_terminating:
            self._counts.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        instance.pushed_at_s = now_s
        if subscription_id != instance.subscription_id:
            self._counts.unknown_subscriptions += 1
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if compression_type not in _COMPRESSION_TYPES:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.TELEMETRY_TOO_LARGE if size > self.bytes_max else ErrorCode.NONE

    def _decode(self, compression: Compression, metrics: bytes) -> Steps[list[Point] | ErrorCode]:
        """Decode a push in steps. Return its data points or an error."""
        points: list[Point] = []
        try:
            content = decompress(compression, metrics, self.bytes_max)
            yield
            reader = MetricsReader(content, RESOURCE_ATTRIBUTES)
            for point in reader:
                yield
                if point is None:
                    continue
                if len(points) < SERIES_PER_INSTANCE_MAX:
                    points.append(point)
                else:
                    self._counts.dropped += 1
        except DecompressedTooLargeError:
            # Java's clients stop pushing after INVALID_RECORD (KAFKA-21076), so return another error.
            self._counts.invalid_pushes += 1
            return ErrorCode.TELEMETRY_TOO_LARGE
        except (CorruptBatchError, MalformedMessageError):
            self._counts.invalid_pushes += 1
            return ErrorCode.INVALID_RECORD
        self._counts.pushes += 1
        self._counts.dropped += reader.skipped
        return points

    def _keep_all(self, client_instance_id: bytes, instance: _Instance, points: Iterable[Point]) -> Steps[None]:
        """Store the data points of a push. Stop if another request removes the client instance between two steps."""
        for number, point in enumerate(points):
            if is_pause_due(number):
                yield
            if self._instances.get(client_instance_id) is not instance:
                return
            self._keep(instance, point)

    def _keep(self, instance: _Instance, point: Point) -> None:
        name = prometheus_name(point.name, is_counter=point.is_counter)
        adds_up = point.is_delta or name.endswith(COUNTER_SUFFIX)
        is_wrong = adds_up and not (math.isfinite(point.value) and (point.value >= 0 or not point.is_counter))
        series = name, _labels(point.attributes)
        before = instance.series.get(series)
        size = _size(instance.client_id, *series) if before is None else 0
        if is_wrong or (before is None and self._is_full(instance, size)):
            self._counts.dropped += 1
            return
        instance.series[series] = point.value + (before or 0.0) if point.is_delta else point.value
        instance.series_bytes += size
        self._series_bytes += size
        self._series_count += before is None

    def _is_full(self, instance: _Instance, size: int) -> bool:
        """Return whether one more series of this size would exceed a limit."""
        return (
            len(instance.series) >= SERIES_PER_INSTANCE_MAX
            or instance.series_bytes + size > SERIES_BYTES_PER_INSTANCE_MAX
            or self._series_count >= SERIES_MAX
            or self._series_bytes + size > SERIES_BYTES_MAX
        )

    # --- instances --------------------------------------------------------------------------------------

    def _new_instance_id(self) -> bytes:
        while (new_id := self._new_id().bytes) in self._instances or new_id in RESERVED_IDS:
            pass
        return new_id

    def _instance(self, client_instance_id: bytes, client_id: str | None) -> _Instance:
        """Return the client instance with this id.

        Create it if the id is unknown: another broker may have assigned the id.
        """
        self._forget_expired()
        instance = self._instances.get(client_instance_id)
        if instance is None:
            if len(self._instances) >= INSTANCES_MAX:
                self._forget(next(next(iter(ids)) for ids in self._ranks.values() if ids))
            subscription_id = self._checksum ^ zlib.crc32(client_instance_id)
            instance = _Instance(_shortened(client_id or ""), subscription_id - (subscription_id >> 31 << 32))
            self._instances[client_instance_id] = instance
        if not instance.is_terminated:
            self._place(client_instance_id, instance)
        return instance

    def _place(self, client_instance_id: bytes, instance: _Instance) -> None:
        """Move an instance to the end of its current rank, and restart its expiry time."""
        self._ranks[instance.rank].pop(client_instance_id, None)
        instance.rank = _rank(instance)
        self._ranks[instance.rank][client_instance_id] = None
        lifetime_s = TERMINATED_S if instance.is_terminated else self._silence_s
        instance.expires_at_s = self._clock.monotonic() + lifetime_s

    def _forget_expired(self) -> None:
        now_s = self._clock.monotonic()
        for ids in self._ranks.values():
            while ids and self._instances[first := next(iter(ids))].expires_at_s <= now_s:
                self._forget(first)

    def _forget(self, client_instance_id: bytes) -> None:
        instance = self._instances.pop(client_instance_id)
        del self._ranks[instance.rank][client_instance_id]
        self._series_count -= len(instance.series)
        self._series_bytes -= instance.series_bytes
        instance.series = {}

    # --- metrics page -----------------------------------------------------------------------------------

    def collect(self) -> Iterator[Sample]:
        """Yield the latest metrics of all clients, and the broker's counters of client pushes."""
        counts = self._counts
        yield INSTANCES.sample(len(self._instances))
        yield PUSHES.sample(counts.pushes)
        yield INVALID_PUSHES.sample(counts.invalid_pushes)
        yield THROTTLED.sample(counts.throttled)
        yield UNKNOWN_SUBSCRIPTIONS.sample(counts.unknown_subscriptions)
        yield DROPPED.sample(counts.dropped)
        by_name: dict[str, list[tuple[str, str, Attributes, float]]] = {}
        now_s = self._clock.monotonic()
        for instance_id, instance in list(self._instances.items()):
            if instance.expires_at_s <= now_s:
                continue
            client_instance_id = str(uuid.UUID(bytes=instance_id))
            for (name, labels), value in list(instance.series.items()):
                by_name.setdefault(name, []).append((instance.client_id, client_instance_id, labels, value))
        for name, found in by_name.items():
            yield from _samples(name, found)


_COMPRESSION_TYPES = frozenset({Compression.NONE, *COMPRESSIONS})
_ASKS_AGAIN = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""The errors after which a client may request its subscription again immediately."""


def prometheus_name(name: str, *, is_counter: bool) -> str:
    """Return the Prometheus name of a client's metric.

    >>> prometheus_name("org.apache.kafka.producer.connection.creation.total", is_counter=True)
    'org_apache_kafka_producer_connection_creation_total'
    >>> prometheus_name("queue depth", is_counter=True)
    'client_queue_depth_total'
    """
    clean = _NOT_IN_NAMES.sub("_", name[:NAME_CHARACTERS_MAX])
    if not clean.startswith(OWN_PREFIX):
        clean = OTHER_PREFIX + clean
    return clean + COUNTER_SUFFIX if is_counter and not clean.endswith(COUNTER_SUFFIX) else clean


def _labels(attributes: Attributes) -> Attributes:
    """Return attributes as labels with unique names, sorted by name."""
    labels: dict[str, str] = {}
    for name, value in attributes:
        label = _NOT_IN_NAMES.sub("_", name[:LABEL_CHARACTERS_MAX]).lstrip("_0123456789")
        if label and label not in CLIENT_LABELS and len(labels) < LABELS_MAX:
            labels.setdefault(label, _shortened(value))
    return tuple(sorted(labels.items()))


def _shortened(text: str) -> str:
    encoded = text[:VALUE_BYTES_MAX].encode(errors="replace")
    return encoded[:VALUE_BYTES_MAX].decode(errors="ignore")


_INSTANCE_ID_BYTES = 36


def _size(client_id: str, name: str, labels: Attributes) -> int:
    """Return the size of a series on the metrics page in bytes, without its value and punctuation."""
    texts = (client_id, name, *(text for label in labels for text in label))
    return _INSTANCE_ID_BYTES + sum(len(text.encode()) for text in texts)


def _rank(instance: _Instance) -> _Rank:
    if instance.is_terminated:
        return _Rank.TERMINATED
    return _Rank.WITH_SERIES if instance.series else _Rank.WITHOUT_SERIES


def _samples(name: str, found: Iterable[tuple[str, str, Attributes, float]]) -> Iterator[Sample]:
    """Yield the samples of one metric.

    All samples have the same label names. Labels that a client does not set are empty.

    If a metric has too many labels, some labels are dropped, and series that only differed in these labels are merged.
    Otherwise Prometheus would reject the whole page because of duplicate series.
    """
    found = list(found)
    names = dict.fromkeys(label for _, _, labels, _ in found for label, _ in labels)
    used = [*names][:LABELS_MAX]
    kind = Kind.COUNTER if name.endswith(COUNTER_SUFFIX) else Kind.GAUGE
    metric = Metric(name, kind, HELP, (*CLIENT_LABELS, *used))
    samples: dict[tuple[str, ...], float] = {}
    for client_id, client_instance_id, labels, value in found:
        given = dict(labels)
        samples[client_id, client_instance_id, *(given.get(label, "") for label in used)] = value
    for values, value in samples.items():
        yield metric.sample(value, *values)
