"""Random texts for SCRAM."""

from __future__ import annotations

import secrets

NONCE_BYTES = 18


def new_nonce() -> str:
    """Return a random text of printable ASCII characters without a comma, for one authentication."""
    return secrets.token_urlsafe(NONCE_BYTES)
