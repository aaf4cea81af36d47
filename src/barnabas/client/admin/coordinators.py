"""The coordinators of transactional ids and of share-partitions; `Cluster.coordinator` finds those of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from barnabas.addresses import Address
from barnabas.client.cluster import Cluster
from barnabas.client.offset_requests import missing_in_response
from barnabas.errors import ApiError, UnsupportedVersionError
from barnabas.protocol.messages.find_coordinator import SHARE_KEY, FindCoordinatorRequest, FindCoordinatorResponse

MANY_KEYS_VERSION = 4
"""The first version of FindCoordinator with several keys in a request. All brokers with ListTransactions serve it."""
SHARE_VERSION = 6
"""The first version of FindCoordinator that finds share coordinators."""
KEYS_PER_REQUEST = 500


async def find_coordinators(cluster: Cluster, keys: Sequence[str], key_type: int) -> dict[Address, list[str]]:
    """Return the keys by the address of their coordinator. Does not retry.

    :param key_type: TRANSACTION_KEY or SHARE_KEY.
    :raises ApiError: a coordinator is not available, or the client lacks a permission.
    :raises UnsupportedVersionError: the broker is too old.
    """
    channel = await cluster.any_channel()
    if channel.version_for(FindCoordinatorRequest) < (SHARE_VERSION if key_type == SHARE_KEY else MANY_KEYS_VERSION):
        raise UnsupportedVersionError("the broker is too old for FindCoordinator with these keys")
    responses: list[FindCoordinatorResponse] = await asyncio.gather(
        *(
            cluster.ask(
                channel,
                FindCoordinatorRequest(
                    key_type=key_type, coordinator_keys=list(keys[start : start + KEYS_PER_REQUEST])
                ),
            )
            for start in range(0, len(keys), KEYS_PER_REQUEST)
        )
    )
    found: dict[Address, list[str]] = {}
    missing = set(keys)
    for each in (coordinator for response in responses for coordinator in response.coordinators):
        if each.error_code:
            subject = "" if each.error_message else f"coordinator of {each.key!r}"
            raise ApiError(each.error_code, each.error_message or "", subject)
        if each.key in missing:
            missing.discard(each.key)
            found.setdefault((each.host, each.port), []).append(each.key)
    if missing:
        raise missing_in_response(f"coordinator of {min(missing)!r}")
    return found
