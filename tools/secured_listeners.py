"""The settings of brokers whose listeners use TLS and SASL, for the published tests of other projects' clients."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from joserfc import jwk

from barnabas.security.authority import Authority
from barnabas.security.scram import ScramMechanism, credential_from_password

SASL_MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"

Users = Mapping[str, Mapping[str, str]]
"""The password of each user and mechanism. A broker checks PLAIN with the credentials of SCRAM."""


def create_identities(folder: Path, users: Users) -> dict[str, str]:
    """Write a CA, certificates and users; return the settings of a broker that uses them.

    The files `ca.crt`, `client.crt` and `client.key` are for clients.
    """
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    authority = Authority.create("test CA", now)
    (folder / "ca.crt").write_text(authority.certificate)
    client = authority.issue_client("client", now)
    (folder / "client.crt").write_text(client.certificate)
    (folder / "client.key").write_text(client.key)
    server = authority.issue_server(["localhost", "127.0.0.1"], now)
    (folder / "server.pem").write_text(server.key_store)
    credentials = {
        user: {
            mechanism: credential_from_password(ScramMechanism(mechanism), password, os.urandom(16)).text()
            for mechanism, password in passwords.items()
        }
        for user, passwords in users.items()
    }
    # No test has the key of these tokens: kafkajs and platformatic sign none of theirs, and a broker refuses those.
    key = jwk.ECKey.generate_key("P-256", {"kid": "key"}, private=False)
    (folder / "keys.json").write_text(json.dumps({"keys": [{**key.as_dict(private=False), "alg": "ES256"}]}))
    (folder / "users.json").write_text(json.dumps({"users": credentials}))
    return {
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.location": str(folder / "ca.crt"),
        "bootstrap.users.file": str(folder / "users.json"),
        "sasl.enabled.mechanisms": SASL_MECHANISMS,
        "sasl.oauthbearer.jwks.endpoint.url": (folder / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": "kafka",
        "sasl.oauthbearer.expected.audience": "users",
        "sasl.plain.without.tls.enable": "true",
    }


def listener_settings(protocols: Sequence[str], port: int) -> dict[str, str]:
    """Return the settings for one listener per security protocol, at consecutive ports that begin with `port`."""
    return {
        setting: ",".join(f"{protocol}://{host}:{port + place}" for place, protocol in enumerate(protocols))
        for setting, host in (("listeners", "127.0.0.1"), ("advertised.listeners", "localhost"))
    }
