"""A broker process whose listeners authenticate clients, and the identities for it: certificates, users and tokens."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jwk, jwt

from tests.support.broker_process import BrokerProcess
from tests.support.certificates import HOSTS, Certificates, now
from tests.support.ports import free_port

MTLS = "mTLS"
"""The row of the matrix for client certificates, which are not a SASL mechanism."""
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER", MTLS)
RIGHT, WRONG, EXPIRED = OUTCOMES = ("right", "wrong", "expired")
WITHOUT_TLS = (*SCRAM_MECHANISMS, "OAUTHBEARER")
"""The mechanisms that the broker also offers without TLS."""
MTLS_LISTENER = "SSL"
LISTENERS = ("SASL_SSL", "SASL_PLAINTEXT", MTLS_LISTENER)
ISSUER, AUDIENCE, KEY_ID = "https://issuer.example", "kafka", "key-1"
ADMINISTRATOR = "administrator"
ITERATIONS = 4096
TOKEN_LIFETIME_S = 3600
KEPT_USER, DELETED_USER = "alice", "bob"
PASSWORD, WRONG_PASSWORD = "correct horse battery staple", "incorrect horse battery staple"
TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The settings with which a client connects. Files are PEM; `certificate` has the private key, too."""

    bootstrap: str
    protocol: str
    ca: str
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    certificate: str = ""

    def as_json(self, **more: Any) -> str:
        """Return the settings and more values for a program in another language."""
        return json.dumps(asdict(self) | more)


class Tokens:
    """An issuer of access tokens."""

    def __init__(self) -> None:
        private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._key = jwk.RSAKey.import_key(private, {"kid": KEY_ID})  # type: ignore[arg-type]

    def write_key_set(self, path: Path) -> None:
        """Write the public key as a JSON Web Key Set."""
        public = {**self._key.as_dict(private=False), "use": "sig", "alg": "RS256"}
        path.write_text(json.dumps({"keys": [public]}))

    def issue(self, subject: str, *, lifetime_s: int = TOKEN_LIFETIME_S) -> str:
        """Return a token that expires after its lifetime; a negative one has expired."""
        issued_s = int(time.time()) + min(0, lifetime_s) - 1
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": subject,
            "iat": issued_s,
            "exp": int(time.time()) + lifetime_s,
        }
        return jwt.encode({"alg": "RS256", "kid": KEY_ID}, claims, self._key)


class AuthenticatingBroker(BrokerProcess):
    """A broker with one listener for each security protocol that authenticates clients."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.ports = {name: free_port() for name in LISTENERS}
        self.certificates = Certificates(data.with_suffix(".pki"))
        self.foreign = Certificates(data.with_suffix(".foreign"), "another CA")
        self.tokens, self._foreign_tokens = Tokens(), Tokens()
        self._administrator = self.certificates.client(ADMINISTRATOR)

    def address(self, listener: str) -> str:
        return f"{HOSTS[0]}:{self.ports[listener]}"

    def begin(self) -> None:
        folder = self.certificates.folder
        key_set = folder / "keys.json"
        self.tokens.write_key_set(key_set)
        settings: Mapping[str, Any] = {
            "listeners": ",".join(f"{name}://{self.address(name)}" for name in LISTENERS),
            "ssl.keystore.location": self.certificates.server("broker"),
            "ssl.truststore.location": self.certificates.ca,
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(each for each in MECHANISMS if each != MTLS),
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": ",".join(WITHOUT_TLS),
            "sasl.oauthbearer.jwks.endpoint.url": key_set.as_uri(),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "super.users": f"User:CN={ADMINISTRATOR}",
        }
        file = self.data.with_suffix(".properties")
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
        command = [sys.executable, "-m", *self.program, "up", "--config", str(file), "--data", str(self.data)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)

    def wait_until_ready(self) -> None:
        assert self.process
        assert self.process.stdout
        line = self.process.stdout.readline().decode()
        assert line.startswith("ready "), self.log.read_text()[-3_000:]

    def create_users(self) -> None:
        """Create a user, and create and delete another one, with AlterUserScramCredentials."""
        admin = AdminClient(
            {
                "bootstrap.servers": self.address("SSL"),
                "security.protocol": "SSL",
                "ssl.ca.location": str(self.certificates.ca),
                "ssl.certificate.location": str(self._administrator),
                "ssl.key.location": str(self._administrator),
            }
        )
        kinds = [getattr(ScramMechanism, name.replace("-", "_")) for name in SCRAM_MECHANISMS]
        for user in (KEPT_USER, DELETED_USER):
            for kind in kinds:
                upsertion = UserScramCredentialUpsertion(
                    user, ScramCredentialInfo(kind, ITERATIONS), PASSWORD.encode(), os.urandom(16)
                )
                _alter(admin, [upsertion])
        for kind in kinds:
            _alter(admin, [UserScramCredentialDeletion(DELETED_USER, kind)])

    def access(self, mechanism: str, outcome: str, listener: str) -> Access:
        """Return the settings for one cell of the matrix."""
        address, ca = self.address(listener), str(self.certificates.ca)
        if mechanism == MTLS:
            certificate = self._certificate(outcome)
            return Access(bootstrap=address, protocol=listener, ca=ca, certificate=str(certificate))
        if mechanism == "OAUTHBEARER":
            token = self._token(outcome)
            return Access(bootstrap=address, protocol=listener, ca=ca, mechanism=mechanism, token=token)
        return Access(
            bootstrap=address,
            protocol=listener,
            ca=ca,
            mechanism=mechanism,
            username=DELETED_USER if outcome == EXPIRED else KEPT_USER,
            password=WRONG_PASSWORD if outcome == WRONG else PASSWORD,
        )

    def _certificate(self, outcome: str) -> Path:
        name = f"client-{outcome}"
        if outcome == WRONG:
            return self.foreign.client(name)
        if outcome == RIGHT:
            return self.certificates.client(name)
        issued = self.certificates.authority.issue_client(name, now() - datetime.timedelta(days=2), days=1)
        path = self.certificates.folder / f"{name}.pem"
        path.write_text(issued.key_store)
        return path

    def _token(self, outcome: str) -> str:
        issuer = self._foreign_tokens if outcome == WRONG else self.tokens
        return issuer.issue(KEPT_USER, lifetime_s=-TOKEN_LIFETIME_S if outcome == EXPIRED else TOKEN_LIFETIME_S)


def _alter(admin: AdminClient, alterations: Sequence[Any]) -> None:
    for future in admin.alter_user_scram_credentials(list(alterations)).values():
        future.result(TIMEOUT_S)
