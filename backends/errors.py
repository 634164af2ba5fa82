"""What can go wrong behind the gateway: one type per thing a caller can act on."""

from __future__ import annotations

from policies.types import Api


class BackendError(Exception):
    """Base of all errors a Backend raises from `stream`. The message is fit for a client: no secrets."""


class UpstreamRejected(BackendError):
    """The upstream answered with an error status. `body` is its JSON body as sent, in the shape of `api`,
    the one that was called, b"" when it was not JSON. `headers` holds those worth keeping (`retry-after`,
    `x-ratelimit-*`)."""

    def __init__(
        self, message: str, *, status: int, body: bytes, headers: dict[str, str], api: Api = "chat"
    ) -> None:
        super().__init__(message)
        self.api = api
        self.status = status
        self.body = body
        self.headers = headers


class ApiMissing(BackendError):
    """The upstream does not have this API; the backend's `apis` no longer name it."""


class BackendResting(BackendError):
    """The backend failed too often lately and is left alone for `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UpstreamUnreachable(BackendError):
    """No connection, or it broke before anything was answered. `sent`: the request may have arrived."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class UpstreamTimeout(BackendError):
    """The upstream did not answer in time: to the first token, between two, or as a whole."""


class UpstreamInvalid(BackendError):
    """The upstream answered 2xx with something that is not the JSON or SSE it should be."""


class UpstreamCut(BackendError):
    """The answer broke off after it had begun."""


class InvalidCall(BackendError):
    """The request cannot be served by this backend; `param` names the field."""

    def __init__(self, message: str, *, param: str | None) -> None:
        super().__init__(message)
        self.param = param


class Overloaded(BackendError):
    """The queue is full; `retry_after_s` is the queue's own estimate."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineUnavailable(BackendError):
    """The built-in engine cannot start or is restarting; the message says what to do."""
