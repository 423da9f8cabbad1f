"""An API server that says the same to everything, over real TLS, and counts."""

import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from pileus.pki import Authority, Subject

UNAUTHORIZED = (
    b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized",'
    b'"reason":"Unauthorized","code":401}'
)


class Refusing(ThreadingHTTPServer):
    """Answers 401."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        now = datetime.now(UTC)
        authority = Authority("its-ca", now=now)
        self.authority_file = folder / "ca.crt"
        self.authority_file.write_bytes(authority.certificate)
        other = Authority("another-ca", now=now)
        self.other_authority_file = folder / "other-ca.crt"
        self.other_authority_file.write_bytes(other.certificate)
        pair = authority.issue(Subject(common_name="server", names=("127.0.0.1",)), now=now)
        (folder / "server.pem").write_bytes(pair.certificate + pair.key)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(folder / "server.pem")
        self.requests: list[str] = []
        self.url = f"https://127.0.0.1:{self.server_address[1]}"

    def finish_request(self, request: Any, client_address: Any) -> None:
        """The handshake is the thread's business; a client that mistrusts us ends it."""
        try:
            with self._tls.wrap_socket(request, server_side=True) as secure:
                super().finish_request(secure, client_address)
        except OSError:
            return


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        cast("Refusing", self.server).requests.append(self.path)
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(UNAUTHORIZED)))
        self.end_headers()
        self.wfile.write(UNAUTHORIZED)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its name there
        pass


@contextmanager
def refusing(folder: Path) -> Generator[Refusing]:
    server = Refusing(folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
