"""Read the token that a server asks of its clients, from a file or the environment."""

import os
from pathlib import Path

from headway.errors import ServeError

VARIABLE = "HEADWAY_TOKEN"
LEAST_LENGTH = 16


def token_of(path: str = "") -> str:
    """Return the token in a file, else that of ``HEADWAY_TOKEN``; empty where there is none."""
    if not path:
        return _checked(os.environ.get(VARIABLE, "").strip(), VARIABLE)
    try:
        text = Path(path).expanduser().read_text(encoding="ascii").strip()
    except (OSError, ValueError) as problem:
        raise ServeError(f"--token-file {path}: cannot be read as ASCII ({problem})") from None
    if not text:
        raise ServeError(f"--token-file {path}: it is empty (openssl rand -hex 32 makes a token)")
    return _checked(text, f"--token-file {path}")


def _checked(token: str, where: str) -> str:
    if token and (len(token) < LEAST_LENGTH or not token.isascii() or not token.isprintable() or " " in token):
        raise ServeError(
            f"{where}: a token is one word of {LEAST_LENGTH} or more ASCII characters (openssl rand -hex 32 makes one)"
        )
    return token
