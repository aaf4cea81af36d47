"""The interceptors of a client: the interceptors that settings enable, followed by the interceptors
of the application.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from barnabas.client.config import ConsumerConfig, ProducerConfig
from barnabas.client.interceptors import (
    ConsumerInterceptor,
    ConsumerInterceptors,
    ProducerInterceptor,
    ProducerInterceptors,
)
from barnabas.client.metrics_push import ConsumerMetricsPush, MetricsPush, ProducerMetricsPush
from barnabas.metrics import otlp


def producer_interceptors(config: ProducerConfig, given: Iterable[ProducerInterceptor]) -> ProducerInterceptors:
    """Return the interceptors of a producer.

    :raises ConfigurationError: an element of `given` is not a `ProducerInterceptor`.
    """
    configured: list[ProducerInterceptor] = []
    if config.audit:
        from barnabas.client.audit.producer_audit import ProducerAudit  # noqa: PLC0415 - import only if needed: most producers have no audit

        configured.append(ProducerAudit(config.audit_window_ms))
    if config.enable_metrics_push and otlp.is_installed():
        configured.append(ProducerMetricsPush(MetricsPush(random.random)))
    return ProducerInterceptors([*configured, *given])


def consumer_interceptors(config: ConsumerConfig, given: Iterable[ConsumerInterceptor]) -> ConsumerInterceptors:
    """Return the interceptors of a consumer.

    :raises ConfigurationError: an element of `given` is not a `ConsumerInterceptor`.
    """
    configured: list[ConsumerInterceptor] = []
    if config.audit and config.group is not None:
        from barnabas.client.audit.consumer_audit import ConsumerAudit  # noqa: PLC0415 - import only if needed: most consumers have no audit

        configured.append(ConsumerAudit(config.group))
    if config.enable_metrics_push and otlp.is_installed():
        configured.append(ConsumerMetricsPush(MetricsPush(random.random)))
    return ConsumerInterceptors([*configured, *given])
