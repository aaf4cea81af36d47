"""The metrics of requests and connections, by API and by listener."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from barnabas.broker.authentication import AuthenticationCounts
from barnabas.broker.pipeline.chain import NO_RESPONSE, TIME_BOUNDS_S, RequestKind
from barnabas.broker.pipeline.scheduler import RequestPipeline
from barnabas.broker.quotas.enforcement import ThrottleCounts
from barnabas.broker.quotas.entities import QUOTAS_OF_CLIENTS
from barnabas.errors import ErrorCode
from barnabas.metrics.metric import Observations, Sample, counter, gauge, histogram
from barnabas.net.listener import Listener

# These metrics have the names of Strimzi's JMX exporter.
REQUESTS = counter("kafka_network_requestmetrics_requests_total", "Requests, by API and version.", "request", "version")
ERRORS = counter(
    "kafka_network_requestmetrics_errors_total",
    "Responses by error code. NONE: no error. NO_RESPONSE: the connection ended before the response.",
    "request",
    "error",
)
TIMES_MS = histogram(
    "kafka_network_requestmetrics_totaltimems",
    "Time from a request to its response in milliseconds, including all waits.",
    tuple(bound * 1000 for bound in TIME_BOUNDS_S),
    "request",
)
PURGATORY = gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Requests in the purgatory, waiting for records, replicas or groups.",
    "delayedOperation",
)
CONNECTIONS = gauge("kafka_server_socket_server_metrics_connection_count", "Open connections.", "listener")
ACCEPTED = counter("kafka_server_socket_server_metrics_connection_creation_total", "Accepted connections.", "listener")
FETCH_SESSIONS = gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchsessions", "Open incremental fetch sessions of clients."
)

REQUEST_BYTES = counter("barnabas_request_bytes_total", "Size of requests in bytes.", "request")
RESPONSE_BYTES = counter("barnabas_response_bytes_total", "Size of responses in bytes.", "request")
CLIENT_REQUESTS = counter(
    "barnabas_client_requests_total", "Requests by client id. (others): clients beyond the first 1000.", "client_id"
)
REFUSED = counter("barnabas_connections_refused_total", "Connections rejected because of a limit.", "listener")
THROTTLED_CONNECTIONS = counter(
    "barnabas_connections_throttled_total", "Connections that waited because of the rate of their address.", "listener"
)
THROTTLES = counter("barnabas_throttles_total", "Throttled calls, by the quota that was exceeded.", "quota")
THROTTLE_MS = counter(
    "barnabas_throttle_ms_total", "Time for which clients had to wait because of quotas, in milliseconds.", "quota"
)
AUTHENTICATED = counter(
    "kafka_server_socket_server_metrics_successful_authentication_total",
    "Completed authentications with SASL, without repeated authentications of a connection.",
    "listener",
)
REAUTHENTICATED = counter(
    "kafka_server_socket_server_metrics_successful_reauthentication_total",
    "Completed repeated authentications of a connection.",
    "listener",
)
NOT_AUTHENTICATED = counter(
    "kafka_server_socket_server_metrics_failed_authentication_total",
    "Failed TLS handshakes, and failed authentications with SASL.",
    "listener",
)
REQUEST_MEMORY = gauge("barnabas_request_memory_bytes", "Memory of requests in progress, in bytes.", "listener")
WAITING_MEMORY = gauge("barnabas_waiting_request_memory_bytes", "Memory of waiting requests, in bytes.", "listener")

FETCH = "Fetch"


def collect_requests(pipelines: Sequence[RequestPipeline]) -> Iterator[Sample]:
    """Yield the metrics of requests. Any thread may call this function."""
    requests: Counter[tuple[str, int]] = Counter()
    errors: Counter[tuple[str, str]] = Counter()
    clients: Counter[str] = Counter()
    times: dict[str, Observations] = {}
    sizes: Counter[str] = Counter()
    response_sizes: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for pipeline in pipelines:
        for kind, count in pipeline.counts.counts().items():
            name = _name(pipeline, kind.api_key)
            requests[name, kind.version] += count
            errors[name, _error_name(kind)] += count
            clients[kind.client_id or ""] += count
        for key, api in pipeline.counts.apis().items():
            name = _name(pipeline, key)
            sizes[name] += api.request_bytes
            response_sizes[name] += api.response_bytes
            times[name] = _sum(times.get(name), api.times())
        for key, count in pipeline.counts.waiting.copy().items():
            waiting[pipeline.served[key].api.name] += count
    for (name, version), count in requests.items():
        yield REQUESTS.sample(count, name, str(version))
    for (name, error), count in errors.items():
        yield ERRORS.sample(count, name, error)
    for name, observations in times.items():
        yield TIMES_MS.sample(Observations(observations.counts, observations.total * 1000), name)
    for name, size in sizes.items():
        yield REQUEST_BYTES.sample(size, name)
    for name, size in response_sizes.items():
        yield RESPONSE_BYTES.sample(size, name)
    for name in {*waiting, FETCH, "Produce"}:
        yield PURGATORY.sample(waiting[name], name)
    for client_id, count in clients.items():
        yield CLIENT_REQUESTS.sample(count, client_id)


def collect_connections(listeners: Mapping[str, Listener]) -> Iterator[Sample]:
    """Yield the metrics of connections. Any thread may call this function.

    :param listeners: the listeners, by name.
    """
    for name, listener in listeners.items():
        yield CONNECTIONS.sample(listener.connection_count, name)
        yield ACCEPTED.sample(listener.accepted_count, name)
        yield REFUSED.sample(listener.refused_count, name)
        yield THROTTLED_CONNECTIONS.sample(listener.throttled_count, name)
        yield REQUEST_MEMORY.sample(listener.memory.used_bytes, name)
        yield WAITING_MEMORY.sample(listener.waiting_memory.used_bytes, name)


def collect_throttles(counts: ThrottleCounts) -> Iterator[Sample]:
    """Yield the metrics of quotas. Any thread may call this function."""
    for quota in QUOTAS_OF_CLIENTS:
        yield THROTTLES.sample(counts.calls[quota], quota)
        yield THROTTLE_MS.sample(counts.total_ms[quota], quota)


def collect_authentications(
    pipelines: Sequence[RequestPipeline], listeners: Mapping[str, Listener]
) -> Iterator[Sample]:
    """Yield the metrics of authentications. Any thread may call this function.

    :param listeners: the listeners, by name.
    """
    for pipeline in pipelines:
        name = pipeline.listener.name
        counts = AuthenticationCounts() if pipeline.authentication is None else pipeline.authentication.counts
        yield AUTHENTICATED.sample(counts.successful, name)
        yield REAUTHENTICATED.sample(counts.repeated, name)
        yield NOT_AUTHENTICATED.sample(listeners[name].failed_handshake_count + counts.failed, name)


def _name(pipeline: RequestPipeline, key: int) -> str:
    """Return the name of an API in the metrics.

    As in Kafka, fetches of followers and of consumers have different names.
    """
    name = pipeline.served[key].api.name
    if name != FETCH:
        return name
    return "FetchFollower" if pipeline.listener.serves_brokers else "FetchConsumer"


def _error_name(kind: RequestKind) -> str:
    if kind.error_code == NO_RESPONSE:
        return "NO_RESPONSE"
    try:
        return ErrorCode(kind.error_code).name
    except ValueError:
        return str(kind.error_code)


def _sum(one: Observations | None, other: Observations) -> Observations:
    if one is None:
        return other
    counts = tuple(a + b for a, b in zip(one.counts, other.counts, strict=True))
    return Observations(counts, one.total + other.total)
