"""`pileus apiserver`: serve an embedded Kubernetes API until Ctrl-C."""

import asyncio
import errno
import ipaddress
import signal
from collections.abc import Sequence
from pathlib import Path

from pileus.cli.arguments import Argument, Given, Help, Usage, UsageError, answered, parse
from pileus.cli.terminal import Terminal
from pileus.telemetry.logs import logging_to
from pileus.telemetry.settings import LogSettings
from pileus_lab.apiserver.allocation import Ranges
from pileus_lab.apiserver.credentials import write_private
from pileus_lab.apiserver.server import ServerInfo, Settings, serving_api
from pileus_lab.apiserver.sqlite import Unusable

PORT = 6443
MOST_PORTS = 65535


USAGE = Usage(
    "Serve an embedded Kubernetes API for trials and tests, until Ctrl-C.",
    (
        Argument(name="--bind-address", text="Address to listen on.", default="127.0.0.1"),
        Argument(
            name="--port", text="Port to listen on; 0: any free port.", kind=int, default=PORT
        ),
        Argument(name="--data-dir", text="Folder that keeps all objects; default: in memory."),
        Argument(name="--kubeconfig-out", text="File for the kubeconfig; default: printed."),
        Argument(
            name="--service-cluster-ip-range",
            text="Comma-separated CIDRs of cluster IPs, one per family.",
            default="10.0.0.0/16",
        ),
        Argument(
            name="--service-node-port-range", text="Range of node ports.", default="30000-32767"
        ),
    ),
)


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    try:
        given = parse(program, USAGE, arguments)
        settings = _settings(given)
    except (Help, UsageError) as error:
        return answered(error, program, terminal)
    out = Path(given.text("kubeconfig-out")) if given.text("kubeconfig-out") else None
    with logging_to(LogSettings(), terminal.out, terminal.err):
        return _run(settings, out, terminal)


def _settings(given: Given) -> Settings:
    port, folder = given.number("port") or 0, given.text("data-dir")
    if not 0 <= port <= MOST_PORTS:
        raise UsageError(f"--port {port}: must be between 0 and {MOST_PORTS}")
    return Settings(
        host=given.text("bind-address"),
        port=port,
        data=Path(folder) if folder else None,
        ranges=_ranges(
            given.text("service-cluster-ip-range"), given.text("service-node-port-range")
        ),
    )


def _ranges(networks: str, ports: str) -> Ranges:
    try:
        parsed = tuple(ipaddress.ip_network(part.strip()) for part in networks.split(","))
    except ValueError as error:
        raise UsageError(f"--service-cluster-ip-range {networks}: {error}") from error
    if len({network.version for network in parsed}) < len(parsed):
        raise UsageError(f"--service-cluster-ip-range {networks}: one network per family")
    first, _, last = ports.partition("-")
    if not (first.isdigit() and last.isdigit() and 0 < int(first) <= int(last) <= MOST_PORTS):
        raise UsageError(f"--service-node-port-range {ports}: should be like 30000-32767")
    return Ranges(parsed, int(first), int(last))


def _run(settings: Settings, out: Path | None, terminal: Terminal) -> int:
    try:
        asyncio.run(_serve(settings, out, terminal))
    except Unusable as error:
        return terminal.refuse(str(error))
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        why = "the port is in use" if error.errno == errno.EADDRINUSE else str(error)
        hint = "use another --port (0: any free port) or --bind-address"
        return terminal.refuse(f"cannot listen on {where}: {why}", hint)
    return 0


async def _serve(settings: Settings, out: Path | None, terminal: Terminal) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving_api(settings) as server:
        await asyncio.to_thread(_print_access, server, out, terminal)
        await stop.wait()


def _print_access(server: ServerInfo, out: Path | None, terminal: Terminal) -> None:
    terminal.err.write(f"Serving the Kubernetes API on {server.url}\n")
    if out is None:
        terminal.out.write(server.kubeconfig().decode() + "\n")
    else:
        write_private(out, server.kubeconfig())
        terminal.err.write(f"Try: kubectl --kubeconfig={out} get nodes\n")
    terminal.out.flush()
    terminal.err.flush()
