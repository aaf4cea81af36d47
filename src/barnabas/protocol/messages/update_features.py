"""UpdateFeatures (key 57): change the features of a cluster (KIP-584).

Version 1 adds validation without a change, and the type of the change (KIP-778). Version 2 returns one result for all
features.
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, INT8, INT16, INT32, STRING, array, field, message, nullable, struct

UPGRADE = 1


@struct
class FeatureUpdateKey:
    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    allow_downgrade: bool = field(BOOLEAN, until=0, default=False)
    upgrade_type: int = field(INT8, since=1, default=UPGRADE)


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: int = field(INT32, default=60_000)
    feature_updates: list[FeatureUpdateKey] = field(array(FeatureUpdateKey))
    validate_only: bool = field(BOOLEAN, since=1, default=False)


@struct
class UpdatableFeatureResult:
    feature: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))
    results: list[UpdatableFeatureResult] = field(
        array(UpdatableFeatureResult), until=1, default_factory=list, ignorable=True
    )
