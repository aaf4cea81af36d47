"""ApiVersions, versions 0 to 4: list the supported APIs and versions.

Features are listed only in version 4, because their minimum level is 0, which clients of older versions cannot read. No
feature is finalized at a level above 0.
"""

from __future__ import annotations

from barnabas.broker.features import FEATURES
from barnabas.broker.pipeline.call import Call, ServedApis, serves
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)

FIRST_VERSION_WITH_LEVEL_0 = 4


@serves(ApiVersionsRequest, ends_with_client=True, answers_any_version=True)
def api_versions(served: ServedApis, request: ApiVersionsRequest | None, call: Call) -> ApiVersionsResponse:
    """List the supported APIs and versions.

    :param request: the request, or None if its version is not supported. The response then has version 0 (KIP-511).
    """
    if request is None:
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_api_keys(served))
    response = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=_api_keys(served))
    if call.version >= FIRST_VERSION_WITH_LEVEL_0:
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=0, max_version=level) for name, level in FEATURES.items()
        ]
    return response


def _api_keys(served: ServedApis) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=each.versions.start, max_version=each.versions.stop - 1)
        for key, each in sorted(served.items())
    ]
