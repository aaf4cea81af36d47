"""UpdateFeatures, versions 0 to 2: there are no features here that could be changed (see ApiVersions)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api import Context, serves
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

FIRST_VERSION_WITH_ONE_RESULT = 2


@serves(UpdateFeaturesRequest)
def update_features(broker: Broker, request: UpdateFeaturesRequest, context: Context) -> UpdateFeaturesResponse:
    """Refuse each feature that is named, since none is known."""
    code = ErrorCode.INVALID_UPDATE_VERSION
    results = [
        UpdatableFeatureResult(feature=each.feature, error_code=code, error_message=_why(each.feature))
        for each in request.feature_updates
    ]
    if results and context.version >= FIRST_VERSION_WITH_ONE_RESULT:
        return UpdateFeaturesResponse(error_code=code, error_message=results[0].error_message)
    return UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=results)


def _why(feature: str) -> str:
    return f"this broker does not know the feature {feature!r}; it has no features that can be changed"
