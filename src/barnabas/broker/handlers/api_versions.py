"""ApiVersions, versions 0 to 4: the list of what is served.

No features are advertised: they belong to brokers that upgrade a cluster's metadata format (KIP-584).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api import Context, serves
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@serves(ApiVersionsRequest, ends_with_client=True)
def api_versions(broker: Broker, request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    """Tell which APIs are served."""
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=_api_keys())


def unsupported_version() -> ApiVersionsResponse:
    """Return the answer to a version of ApiVersions that is not served; it goes out in version 0 (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_api_keys())


def _api_keys() -> list[ApiVersion]:
    from barnabas.broker.handlers import SERVED  # noqa: PLC0415 - the list has this handler in it

    return [
        ApiVersion(api_key=key, min_version=served.versions.start, max_version=served.versions.stop - 1)
        for key, served in sorted(SERVED.items())
    ]
