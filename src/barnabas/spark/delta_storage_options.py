"""The translation of pyiceberg's storage properties to deltalake's storage options. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.errors import ConfigurationError

_OPTIONS: Mapping[str, str] = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "s3.region": "AWS_REGION",
}


def storage_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the storage options of deltalake.

    :raises ConfigurationError: A property has no equivalent.

    >>> storage_options({"s3.endpoint": "http://localhost:9000", "s3.region": "us-east-1"})
    {'AWS_ENDPOINT_URL': 'http://localhost:9000', 'AWS_REGION': 'us-east-1', 'AWS_ALLOW_HTTP': 'true'}
    """
    unknown = [name for name in properties if name not in _OPTIONS]
    if unknown:
        raise ConfigurationError(
            f"catalog_properties (--catalog-property): Delta tables do not support {unknown[0]!r}; they support "
            f"{', '.join(_OPTIONS)}"
        )
    options = {_OPTIONS[name]: value for name, value in properties.items()}
    if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options
