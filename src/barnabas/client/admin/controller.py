"""The lookup of the cluster's controller, and the errors of rejected requests."""

from __future__ import annotations

import re

from barnabas.client.cluster import Cluster
from barnabas.errors import ApiError, ErrorCode


async def controller_id(cluster: Cluster) -> int:
    """Return the id of the controller, or of any broker if the cluster has no controller.

    :raises ApiError: BROKER_NOT_AVAILABLE: the metadata contains no broker.
    """
    if cluster.view.controller_id not in cluster.view.brokers:
        await cluster.refresh()
    if cluster.view.controller_id in cluster.view.brokers:
        return cluster.view.controller_id
    for node_id in cluster.view.brokers:
        return node_id  # without a controller, any broker can handle the request
    raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the cluster names no broker")


def refusal(code: int, subject: str, name: str, message: str | None) -> ApiError:
    """Return the error for a rejected request.

    :param subject: the object that the error is about, including its `name`. The error begins with it unless the
        broker's message already contains `name`.
    :param message: the broker's message, or None.

    >>> refusal(36, "topic 'clicks'", "clicks", "topic clicks already exists").message
    'topic clicks already exists'
    >>> refusal(40, "topic 'clicks'", "clicks", "retention.ms must be a number").message
    "topic 'clicks': retention.ms must be a number"
    >>> refusal(40, "topic 's'", "s", "retention.ms must be a number").message
    "topic 's': retention.ms must be a number"
    """
    if not message:
        return ApiError(code, subject=subject)
    has_name = re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", message)
    return ApiError(code, message, subject="" if has_name else subject)
