"""Random texts and salts for SCRAM."""

from __future__ import annotations

import secrets

NONCE_BYTES = 18
SALT_BYTES = 16
"""The size of the salts of new credentials, as that of decoys."""


def new_nonce() -> str:
    """Return a random text of printable ASCII characters without a comma, for one authentication."""
    return secrets.token_urlsafe(NONCE_BYTES)


def new_salt() -> bytes:
    """Return a random salt for a new credential."""
    return secrets.token_bytes(SALT_BYTES)
