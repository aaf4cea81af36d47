"""The security protocols of listeners and connections, and the SASL mechanisms, with the names in Kafka's settings."""

from __future__ import annotations

from enum import Enum

PLAIN = "PLAIN"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
SASL_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)


class SecurityProtocol(Enum):
    """The security protocol of a listener or a connection."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def uses_sasl(self) -> bool:
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}
