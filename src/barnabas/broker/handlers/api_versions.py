"""ApiVersions, versions 0 to 4: the list of what is served.

Features are told from version 4 on: their levels begin with 0, which clients of older versions cannot read. None is
finalized at a level above 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api import Context, serves
from barnabas.broker.features import FEATURES
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

FIRST_VERSION_WITH_LEVEL_0 = 4


@serves(ApiVersionsRequest, ends_with_client=True)
def api_versions(broker: Broker, request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    """Tell which APIs are served."""
    response = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=_api_keys())
    if context.version >= FIRST_VERSION_WITH_LEVEL_0:
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=0, max_version=level) for name, level in FEATURES.items()
        ]
    return response


def unsupported_version() -> ApiVersionsResponse:
    """Return the answer to a version of ApiVersions that is not served; it goes out in version 0 (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_api_keys())


def _api_keys() -> list[ApiVersion]:
    from barnabas.broker.handlers import SERVED  # noqa: PLC0415 - the list has this handler in it

    return [
        ApiVersion(api_key=key, min_version=served.versions.start, max_version=served.versions.stop - 1)
        for key, served in sorted(SERVED.items())
    ]
