"""The program as a user starts it, in a process of its own, without a cluster."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(sys.executable).parent / "cloud-controller-manager"
LIMIT = 60


def environment(*folders: Path) -> dict[str, str]:
    """Nothing that could point to a cluster; distributions of those folders are installed."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(map(str, folders)), "HOME": "/nonexistent"}


def start(arguments: list[str], *folders: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PROGRAM, *arguments],
        env=environment(*folders),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def distribution(folder: Path, name: str, code: str, *providers: str) -> Path:
    """Install a distribution of one module, which offers providers by entry point."""
    info = folder / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (folder / f"{name}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    lines = [f"{provider} = {name}:connect" for provider in providers or (name,)]
    (info / "entry_points.txt").write_text("\n".join(["[pileus.providers]", *lines]))
    return folder


def provider(body: str, cloud: str = "Cloud(name='fake')") -> str:
    """The code of a provider whose `connect` runs `body`, then yields `cloud`."""
    return (
        "from contextlib import asynccontextmanager\n"
        "from pileus.cloud.interface import Cloud\n\n"
        "@asynccontextmanager\n"
        "async def connect(config):\n"
        f"    {body}\n"
        f"    yield {cloud}\n"
    )


def kubeconfig(path: Path, server: str, **cluster: str) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "test", "user": {"token": "false"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path.write_text(json.dumps(config))
    return path


def says(said: str, message: str) -> bool:
    """Whether the message is among what was said; `…` in it stands for anything."""
    pattern = ".*".join(re.escape(part.strip()) for part in message.split("…"))
    return re.search(pattern, said.replace('\\"', '"'), re.DOTALL) is not None
