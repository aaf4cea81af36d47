"""UpdateFeatures, versions 0 to 2. Each feature has a fixed level in Barnabas, so no update has an effect."""

from __future__ import annotations

from barnabas.broker.features import FEATURES
from barnabas.broker.pipeline.call import Call, serves
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


@serves(UpdateFeaturesRequest)
def update_features(request: UpdateFeaturesRequest, call: Call) -> UpdateFeaturesResponse:
    """Reject the whole request if it would change a feature level, as in Kafka."""
    for wanted in request.feature_updates:
        if problem := _problem(wanted):
            return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=problem)
    results = [
        UpdatableFeatureResult(feature=each.feature, error_code=ErrorCode.NONE, error_message=None)
        for each in request.feature_updates
    ]
    return UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=results)


def _problem(wanted: FeatureUpdateKey) -> str | None:
    level = FEATURES.get(wanted.feature)
    if level is None:
        return f"unknown feature {wanted.feature!r}; the supported features are {', '.join(FEATURES)}"
    if not 0 <= wanted.max_version_level <= level:
        return f"feature {wanted.feature} supports the levels 0 to {level}, not {wanted.max_version_level}"
    return None
