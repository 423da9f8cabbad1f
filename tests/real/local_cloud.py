"""The local cloud as a process of its own, beside a real control plane."""

import contextlib
import io
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

from pileus.cli.main import dispatch
from pileus.cli.terminal import Terminal
from tests.real.manager import eventually


class LocalCloud:
    def __init__(self, folder: Path) -> None:
        self.socket = folder / "cloud.sock"
        self.config = folder / "local-cloud.yaml"
        self._state = folder / "cloud.db"
        self.config.write_text(json.dumps({"endpoint": str(self.socket), "network": "none"}))
        self._process: subprocess.Popen[bytes] | None = None

    def keep_state(self) -> None:
        """Have the state outlive the server; call before it is started."""
        config = json.loads(self.config.read_text()) | {"state": str(self._state)}
        self.config.write_text(json.dumps(config))

    def start(self) -> None:
        command = [sys.executable, "-m", "pileus", "local", "serve", f"--config={self.config}"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        eventually("the cloud is served", self._accepts)

    def _accepts(self) -> bool:
        """Whether connections are accepted: the socket's file is there a moment before that."""
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self.socket)) == 0

    def end(self) -> None:
        """Stop the server: connections are refused."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def freeze(self) -> None:
        """Let the server hang: connections are accepted by the kernel and never answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def pileus(self, *arguments: str) -> str:
        """What `pileus local …` prints: said in this process, for tests ask again and again."""
        terminal = Terminal(io.StringIO(), io.StringIO(), {})
        code = dispatch(["local", *arguments, f"--endpoint={self.socket}"], terminal)
        assert code == 0, terminal.err.getvalue()  # type: ignore[attr-defined]
        return terminal.out.getvalue()  # type: ignore[attr-defined]

    @property
    def flags(self) -> tuple[str, str]:
        return "--cloud-provider=local", f"--cloud-config={self.config}"

    def show(self, what: str) -> list[dict[str, Any]]:
        return json.loads(self.pileus(what, "list", "-o", "json"))

    def balancers(self) -> dict[str, dict[str, Any]]:
        """By name."""
        listed = json.loads(self.pileus("balancers", "list", "-o", "json"))
        return {one["name"]: one for one in listed}

    def members(self, name: str) -> list[str]:
        found = self.balancers().get(name, {"members": []})
        return sorted(member["name"] for member in found["members"])


@contextlib.contextmanager
def local_cloud(folder: Path) -> Generator[LocalCloud]:
    cloud = LocalCloud(folder)
    try:
        cloud.start()
        yield cloud
    finally:
        cloud.end()
