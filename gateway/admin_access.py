"""Who may administer: the holder of the admin token, or, where there is none, whoever is on this machine."""

from __future__ import annotations

import hmac
import ipaddress
import re
from typing import Any

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.error_handlers import request_error
from gateway.errors import RequestError

_NOTES = "lockgate.admin"
_FORWARDED = re.compile(r"forwarded|x-forwarded-.*|x-real-ip")
_PORT = re.compile(r":[0-9]+$")


class AdminAccess:
    """ASGI, around the whole application: guards all that is below `/admin`. No answer from there may be kept
    by any cache on the way, and each access is logged, refused ones too: the path and what handlers `note`,
    never the query or a body."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_admin(scope["path"]):
            await self._app(scope, receive, send)
            return
        status = 0
        notes: dict[str, Any] = {}
        scope[_NOTES] = notes

        async def send_uncached(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], (b"cache-control", b"no-store")]
                message = {**message, "headers": headers}
            await send(message)

        request = Request(scope)
        try:
            try:
                self._admit(request)
            except RequestError as error:
                refusal = await request_error(request, error)
                await refusal(scope, receive, send_uncached)
            else:
                await self._app(scope, receive, send_uncached)
        finally:
            _log(request, status, notes)

    def _admit(self, request: Request) -> None:
        """Raises RequestError (401, 403)."""
        if self._token is not None:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            # latin-1: the bytes as they came
            if not hmac.compare_digest(given.encode("latin-1"), self._token.encode()):
                raise RequestError(
                    "Send the admin token: Authorization: Bearer TOKEN.",
                    status=401,
                    kind="authentication_error",
                    headers={"www-authenticate": "Bearer"},
                )
        elif reason := _why_not_local(request):
            raise RequestError(
                f"Without server.admin_token, admin pages answer this machine only: {reason}.",
                status=403,
                kind="permission_error",
            )


def is_admin(path: str) -> bool:
    return path == "/admin" or path.startswith("/admin/")


def note(request: Request, **notes: int | str | bool) -> None:
    """Have the log line of this access say so. No texts of prompts or answers."""
    request.scope[_NOTES].update(notes)


def _log(request: Request, status: int, notes: dict[str, Any]) -> None:
    log = structlog.get_logger("lockgate")
    write = log.warning if status in (401, 403) else log.info
    peer = request.client.host if request.client else ""
    write("admin", action=f"{request.method} {request.scope['path']}", status=status, peer=peer, **notes)


def _why_not_local(request: Request) -> str:
    """ "" when the one who asks is on this machine, and is not a web page of somebody else's."""
    if not (request.client and _is_loopback(request.client.host)):
        return "the request comes from another"
    # Behind a reverse proxy every peer is on the loopback.
    if name := next(filter(_FORWARDED.fullmatch, request.headers.keys()), None):
        return f"the header {name} says that a proxy passed it on"
    # A page can have its own name lead to this machine (DNS rebinding), but neither an address nor localhost.
    host = request.headers.get("host", "")
    name = _PORT.sub("", host).lower()
    if name != "localhost" and not _is_address(name.removeprefix("[").removesuffix("]")):
        return f"the header host is '{host[:80]}', neither localhost nor an address"
    return ""


def _is_loopback(host: str) -> bool:
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
