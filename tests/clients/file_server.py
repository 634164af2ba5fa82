"""A server of files and batches, multipart and binary, in a thread of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

import uvicorn

START_TIMEOUT_S = 10
BATCH = {
    "id": "batch_1",
    "object": "batch",
    "endpoint": "/v1/chat/completions",
    "input_file_id": "file-1",
    "completion_window": "24h",
    "status": "validating",
    "created_at": 1_700_000_000,
}


@dataclass(slots=True, kw_only=True)
class FileServer:
    """An ASGI application. `uploads` are the contents it was given, by file id."""

    uploads: dict[str, bytes] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    base_url: str = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.bodies.append(body)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        status, kind, answer = self._answer(scope["method"], scope["path"], headers, body)
        sent = [(b"content-type", kind.encode()), (b"x-request-id", b"req_of_the_file_server")]
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": answer})

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        """(status, content type, body)"""
        path = path.removeprefix("/v1/")
        if not headers.get("authorization", "").startswith("Bearer "):
            return _json({"error": {"message": "no key", "type": "invalid_request_error"}}, 401)
        match method, path.split("/"):
            case "POST", ["files"]:
                return _json(self._upload(headers["content-type"], body))
            case "GET", ["files", name, "content"] if name in self.uploads:
                return 200, "application/octet-stream", self.uploads[name]
            case "DELETE", ["files", name] if name in self.uploads:
                del self.uploads[name]
                return _json({"id": name, "object": "file", "deleted": True})
            case "POST", ["batches"]:
                return _json({**BATCH, "input_file_id": json.loads(body)["input_file_id"]})
            case "GET", ["batches"]:
                return _json({"object": "list", "data": [BATCH], "has_more": False})
            case "GET", ["models"]:
                row = {"id": "listed-upstream", "object": "model", "created": 1, "owned_by": "fake"}
                return _json({"object": "list", "data": [row]})
            case _:
                return _json({"error": {"message": f"No such thing: {path}", "type": "not_found"}}, 404)

    def _upload(self, content_type: str, body: bytes) -> dict[str, Any]:
        form = BytesParser(policy=HTTP).parsebytes(f"content-type: {content_type}\r\n\r\n".encode() + body)
        parts = {part.get_param("name", header="content-disposition"): part for part in form.iter_parts()}
        name = f"file-{len(self.uploads) + 1}"
        content: Any = parts["file"].get_payload(decode=True)
        self.uploads[name] = content
        return {
            "id": name,
            "object": "file",
            "bytes": len(self.uploads[name]),
            "created_at": 1_700_000_000,
            "filename": parts["file"].get_filename(),
            "purpose": parts["purpose"].get_content().strip(),
            "status": "processed",
        }


def _json(body: dict[str, Any], status: int = 200) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(body).encode()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@contextmanager
def serving_files() -> Iterator[FileServer]:
    files = FileServer()
    server = _Server(uvicorn.Config(files, port=0, lifespan="off", log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert server.listening.wait(START_TIMEOUT_S)
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    files.base_url = f"http://{host}:{port}/v1"
    try:
        yield files
    finally:
        server.should_exit = True
        thread.join(START_TIMEOUT_S)
