"""Random texts and salts for SCRAM."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable

from barnabas.security.scram import SALT_BYTES

NONCE_BYTES = 18


def new_nonce(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """Return a random text of printable ASCII characters without a comma, for one authentication."""
    return base64.urlsafe_b64encode(random_bytes(NONCE_BYTES)).decode("ascii")


def new_salt() -> bytes:
    """Return a random salt for a new credential."""
    return secrets.token_bytes(SALT_BYTES)
