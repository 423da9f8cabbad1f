"""WSGI middleware that writes a line of JSON per request: who asked what, and the status.

Bodies of requests are written too, except Keystone's, which contain passwords.
"""

import io
import json
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

BODY_LIMIT = 1_000_000
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def logged(application: Application, path: Path, *, with_bodies: bool) -> Application:
    lock = threading.Lock()
    file = path.open("a", buffering=1, encoding="utf-8")

    def wrapped(environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        started = time.time()
        record: dict[str, Any] = {
            "t": round(started, 3),
            "method": environment["REQUEST_METHOD"],
            "path": environment.get("SCRIPT_NAME", "") + environment["PATH_INFO"],
            "query": environment.get("QUERY_STRING", ""),
            "ua": environment.get("HTTP_USER_AGENT", ""),
        }
        if with_bodies:
            record |= _body(environment)

        def respond(status: str, headers: list[Any], *rest: Any) -> Any:
            record["status"] = int(status.split(maxsplit=1)[0])
            record["ms"] = round((time.time() - started) * 1000)
            record["project"] = environment.get("HTTP_X_PROJECT_ID", "")
            record["user"] = environment.get("HTTP_X_USER_NAME", "")
            with lock:
                file.write(json.dumps(record) + "\n")
            return start_response(status, headers, *rest)

        return application(environment, respond)

    return wrapped


def _body(environment: dict[str, Any]) -> dict[str, Any]:
    """Returns the request's JSON body, and puts it back for the application to read."""
    length = int(environment.get("CONTENT_LENGTH") or 0)
    if not 0 < length < BODY_LIMIT:
        return {}
    body = environment["wsgi.input"].read(length)
    environment["wsgi.input"] = io.BytesIO(body)
    try:
        return {"body": json.loads(body)}
    except ValueError:
        return {"body": repr(body[:200])}
