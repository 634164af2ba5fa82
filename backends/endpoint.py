"""Where an upstream lives and the credential that belongs to it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`key` is the upstream's own key, None when it has none; `authorization` the value of the Authorization
    header that goes with it, or with a user and password. `secrets` lists what must not appear in any
    message."""

    parts: SplitResult = field(repr=False)
    key: str | None = field(repr=False)
    authorization: str | None = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    def url(self, path: str) -> str:
        """The address of `path` below the base URL, whose query is kept (`?api-version=…`)."""
        return urlunsplit(self.parts._replace(path=f"{self.parts.path.rstrip('/')}/{path}"))


def parse_endpoint(name: str, base_url: str, api_key: str | None) -> Endpoint:
    """User and password in `base_url` become basic authorization; an `api_key` wins over them. Raises
    ValueError, whose message repeats neither the URL nor the key."""
    try:
        parts = urlsplit(base_url.strip())
        host, port, user, password = parts.hostname, parts.port, parts.username, parts.password
    except ValueError:
        raise ValueError(f"{name}: base_url is not a URL") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"{name}: base_url must begin with http:// or https:// and name a host")
    secrets: list[str] = []
    authorization = None
    if user is not None:
        login = f"{unquote(user)}:{unquote(password or '')}"
        token = base64.b64encode(login.encode()).decode("ascii")
        authorization = f"Basic {token}"
        secrets += [token, login, unquote(password or ""), password or ""]
    key = (api_key or "").strip()  # keys read from files end in a line break
    if key:
        if not (key.isascii() and key.isprintable()):
            raise ValueError(f"{name}: api_key holds a character that cannot be sent in a header")
        authorization = f"Bearer {key}"
        secrets.append(key)
    bracketed = f"[{host}]" if ":" in host else host
    netloc = f"{bracketed}:{port}" if port is not None else bracketed
    return Endpoint(
        parts=parts._replace(netloc=netloc, fragment=""),
        key=key or None,
        authorization=authorization,
        secrets=tuple(secret for secret in secrets if secret),
    )
