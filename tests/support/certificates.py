"""Certificates for tests, from one CA in a folder."""

from __future__ import annotations

import datetime
from pathlib import Path

from barnabas.security.authority import Authority, Issued

HOSTS = ("localhost", "127.0.0.1")


class Certificates:
    """A CA, and files with the certificates that it issues."""

    def __init__(self, folder: Path, name: str = "test CA") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority.create(name, now())
        self.ca = folder / f"{name.replace(' ', '-')}.pem"
        self.ca.write_text(self.authority.certificate)

    def server(self, name: str, hosts: tuple[str, ...] = HOSTS) -> Path:
        """Write the key store of a broker; its principal is `User:CN=<name>`."""
        return self._write(name, self.authority.issue_server(hosts, now(), name=name))

    def client(self, name: str) -> Path:
        """Write the key store of a client; its principal is `User:CN=<name>`."""
        return self._write(name, self.authority.issue_client(name, now()))

    def _write(self, name: str, issued: Issued) -> Path:
        path = self.folder / f"{name}.pem"
        written = self.folder / f"{name}.new"
        written.write_text(issued.key_store)
        written.replace(path)
        return path


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
