"""ApiVersions, versions 0 to 4: the list of what is served.

Features are listed from version 4 on: their levels begin with 0, which clients of older versions cannot read. No
feature is finalized at a level above 0.
"""

from __future__ import annotations

from barnabas.broker.api import Context, ServedApis, serves
from barnabas.broker.features import FEATURES
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)

FIRST_VERSION_WITH_LEVEL_0 = 4


@serves(ApiVersionsRequest, ends_with_client=True)
def api_versions(served: ServedApis, request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    """Tell which APIs are served."""
    response = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=_api_keys(served))
    if context.version >= FIRST_VERSION_WITH_LEVEL_0:
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=0, max_version=level) for name, level in FEATURES.items()
        ]
    return response


def unsupported_version(served: ServedApis) -> ApiVersionsResponse:
    """Return the answer to a version of ApiVersions that is not served; it goes out in version 0 (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_api_keys(served))


def _api_keys(served: ServedApis) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=each.versions.start, max_version=each.versions.stop - 1)
        for key, each in sorted(served.items())
    ]
