"""The plainest possible client of an API server, so that the suite tests the server alone."""

import base64
import http.client
import json
import ssl
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
JSON = "application/json"
START_LIMIT = 60.0


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def reason(self) -> str:
        return self.body.get("reason", "")

    @property
    def message(self) -> str:
        return self.body.get("message", "")

    @property
    def causes(self) -> set[tuple[str, str]]:
        """The (reason, field) pairs of a Status."""
        causes = self.body.get("details", {}).get("causes", [])
        return {(cause.get("reason", ""), cause.get("field", "")) for cause in causes}


class Api:
    def __init__(
        self,
        server: str,
        trust: ssl.SSLContext,
        token: str,
        *,
        authority: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        parts = urlsplit(server)
        self._server, self._authority = server, authority
        self._extra = dict(headers or {})
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._trust = trust
        self._token = token

    @classmethod
    def of_kubeconfig(cls, path: Path, wait_for: subprocess.Popen[bytes] | None = None) -> Self:
        deadline = time.monotonic() + START_LIMIT
        while not path.exists():
            assert wait_for is not None, f"{path} does not exist"
            assert wait_for.poll() is None, (path.parent / "log").read_text()
            assert time.monotonic() < deadline, f"{path} did not appear"
            time.sleep(0.05)
        config = json.loads(path.read_text()) if path.read_text().startswith("{") else _yaml(path)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        trust = ssl.create_default_context(cadata=authority)
        if "client-certificate-data" in user:
            with tempfile.NamedTemporaryFile() as file:
                for part in ("client-certificate-data", "client-key-data"):
                    file.write(base64.b64decode(user[part]))
                file.flush()
                trust.load_cert_chain(file.name)
        acting = {"Impersonate-User": user["as"]} if "as" in user else {}
        token = user.get("token", "")
        return cls(cluster["server"], trust, token, authority=authority, headers=acting)

    def bearing(self, token: str) -> "Api":
        """The same server, with this token as the only credential."""
        trust = ssl.create_default_context(cadata=self._authority)
        return Api(self._server, trust, token, authority=self._authority)

    def acting(self, **headers: str) -> "Api":
        """The same credentials with further headers; `impersonate_user` is `Impersonate-User`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        trust, authority = self._trust, self._authority
        return Api(self._server, trust, self._token, authority=authority, headers=named)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        anonymous: bool = False,
        **query: Any,
    ) -> Answer:
        with closing(self._connect()) as connection:
            headers = self._headers(content_type, accept, anonymous=anonymous)
            raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            connection.request(method, _url(path, query), raw, headers)
            answer = connection.getresponse()
            content = answer.read()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, _decoded(content), headers)

    def get(self, path: str, **query: Any) -> Answer:
        return self.send("GET", path, **query)

    def post(self, path: str, body: Any, **query: Any) -> Answer:
        return self.send("POST", path, body, **query)

    def put(self, path: str, body: Any, **query: Any) -> Answer:
        return self.send("PUT", path, body, **query)

    def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        return self.send("DELETE", path, body, **query)

    def patch(self, path: str, body: Any, content_type: str = MERGE, **query: Any) -> Answer:
        return self.send("PATCH", path, body, content_type=content_type, **query)

    @contextmanager
    def watch(self, path: str, **query: Any) -> Generator[Iterator[dict[str, Any]]]:
        """Open a watch that the server ends after 10 s at the latest; yields its events."""
        with closing(self._connect()) as connection:
            query = {"watch": "true", "timeoutSeconds": 10, **query}
            connection.request("GET", _url(path, query), headers=self._headers(JSON, JSON))
            answer = connection.getresponse()
            if answer.status != 200:
                raise WatchRefused(Answer(answer.status, _decoded(answer.read())))
            yield (json.loads(line) for line in answer if line.strip())

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, self._port, context=self._trust, timeout=30)

    def _headers(
        self, content_type: str, accept: str, *, anonymous: bool = False
    ) -> dict[str, str]:
        token = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        own = {} if anonymous else token
        return {"Accept": accept, "Content-Type": content_type, **own, **self._extra}


class WatchRefused(Exception):
    def __init__(self, answer: Answer) -> None:
        super().__init__(str(answer))
        self.answer = answer


@dataclass(frozen=True)
class Namespace:
    """One namespace, with short ways to the kinds that cases use most."""

    api: Api
    name: str

    def path(self, plural: str, name: str = "", *, group: str = "") -> str:
        root = f"/apis/{group}" if group else "/api/v1"
        return f"{root}/namespaces/{self.name}/{plural}" + (f"/{name}" if name else "")

    def config_map(self, name: str = "one", **fields: Any) -> dict[str, Any]:
        """Create a ConfigMap and return it as the server has it."""
        metadata = {"name": name, **fields.pop("metadata", {})}
        made = self.api.post(self.path("configmaps"), {"metadata": metadata, **fields})
        assert made.status == 201, made
        return made.body


def _url(path: str, query: dict[str, Any]) -> str:
    return f"{path}?{urlencode(query, doseq=True)}" if query else path


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


def _yaml(path: Path) -> Any:
    import yaml

    return yaml.safe_load(path.read_text())
