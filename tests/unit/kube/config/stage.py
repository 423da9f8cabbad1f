"""What the tests of configuration share: a clock moved by hand, kubeconfig files, a plugin."""

import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pileus.kube.access import Access
from pileus.kube.config.choose import AccessContext, load_access

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@dataclass
class HandClock:
    moment: datetime = NOON

    def now(self) -> datetime:
        return self.moment

    def forward(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@dataclass
class Stage:
    """A folder with a kubeconfig, and the time."""

    folder: Path
    clock: HandClock = field(default_factory=HandClock)
    environ: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "config"

    @property
    def here(self) -> AccessContext:
        return AccessContext(clock=self.clock, service_account=self.folder / "serviceaccount")

    def write(self, cluster: Mapping[str, object], user: Mapping[str, object]) -> None:
        """Write a kubeconfig with one context; JSON, which is YAML too."""
        self.kubeconfig.write_text(json.dumps(document(cluster, user)))

    def load(self, *, master: str = "") -> Access:
        return load_access(str(self.kubeconfig), master, self.environ, self.here)

    def load_user(self, **user: object) -> Access:
        self.write({"server": "http://127.0.0.1:8080"}, user)
        return self.load()

    def script(self, text: str, name: str = "plugin") -> Path:
        """Write an executable shell script."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def mount_service_account(self, token: str, authority: bytes) -> Path:
        folder = self.folder / "serviceaccount"
        folder.mkdir()
        (folder / "token").write_text(token)
        (folder / "ca.crt").write_bytes(authority)
        (folder / "namespace").write_text("kube-system\n")
        return folder


def document(cluster: Mapping[str, object], user: Mapping[str, object]) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "home", "cluster": dict(cluster)}],
        "users": [{"name": "jane", "user": dict(user)}],
        "contexts": [{"name": "here", "context": {"cluster": "home", "user": "jane"}}],
    }


async def authorization(access: Access) -> str | None:
    headers = await access.credentials.headers()
    return headers.get("Authorization")
