"""`pileus apiserver`: the embedded Kubernetes API server, until it is told to stop."""

import argparse
import asyncio
import ipaddress
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from pileus.apiserver.allocation import Ranges
from pileus.apiserver.credentials import write_private
from pileus.apiserver.serving import ServerInfo, Settings, serving_api
from pileus.apiserver.sqlite import Unusable
from pileus.cli.terminal import Terminal
from pileus.telemetry.logs import LogSettings, logging_to

PORT = 6443
MOST_PORTS = 65535


class _Misused(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Misused(message)


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    parser = _parser(program)
    try:
        given = parser.parse_args(arguments)
        settings = _settings(given)
    except _Misused as error:
        return terminal.refuse(str(error), f"{program} --help lists the flags")
    if given.help:
        terminal.out.write(parser.format_help())
        return 0
    out = Path(given.kubeconfig_out) if given.kubeconfig_out else None
    with logging_to(LogSettings(), terminal.out, terminal.err):
        return _run(settings, out, terminal)


def _parser(program: str) -> _Parser:
    parser = _Parser(prog=program, add_help=False, description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("-h", "--help", action="store_true", help="print this and end")
    add("--bind-address", default="127.0.0.1", help="address to listen on (%(default)s)")
    add("--port", type=int, default=PORT, help="port to listen on; 0: any (%(default)s)")
    add("--data-dir", default="", help="folder to keep all objects in; in memory if not given")
    add("--kubeconfig-out", default="", help="file for the kubeconfig; else it is printed")
    add(
        "--service-cluster-ip-range",
        default="10.0.0.0/16",
        help="networks of cluster IPs, one per family, by comma (%(default)s)",
    )
    add("--service-node-port-range", default="30000-32767", help="node ports (%(default)s)")
    return parser


def _settings(given: argparse.Namespace) -> Settings:
    if not 0 <= given.port <= MOST_PORTS:
        raise _Misused(f"--port {given.port}: must be between 0 and {MOST_PORTS}")
    return Settings(
        host=given.bind_address,
        port=given.port,
        data=Path(given.data_dir) if given.data_dir else None,
        ranges=_ranges(given.service_cluster_ip_range, given.service_node_port_range),
    )


def _ranges(networks: str, ports: str) -> Ranges:
    try:
        parsed = tuple(ipaddress.ip_network(part.strip()) for part in networks.split(","))
    except ValueError as error:
        raise _Misused(f"--service-cluster-ip-range {networks}: {error}") from error
    if len({network.version for network in parsed}) < len(parsed):
        raise _Misused(f"--service-cluster-ip-range {networks}: one network per family")
    first, _, last = ports.partition("-")
    if not (first.isdigit() and last.isdigit() and 0 < int(first) <= int(last) <= MOST_PORTS):
        raise _Misused(f"--service-node-port-range {ports}: should be like 30000-32767")
    return Ranges(parsed, int(first), int(last))


def _run(settings: Settings, out: Path | None, terminal: Terminal) -> int:
    try:
        asyncio.run(_serve(settings, out, terminal))
    except Unusable as error:
        return terminal.refuse(str(error))
    except OSError as error:
        where = f"{settings.host} port {settings.port}"
        return terminal.refuse(f"cannot listen on {where}: {error}", "--port 0 takes a free one")
    return 0


async def _serve(settings: Settings, out: Path | None, terminal: Terminal) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving_api(settings) as server:
        await asyncio.to_thread(_tell, server, out, terminal)
        await stop.wait()


def _tell(server: ServerInfo, out: Path | None, terminal: Terminal) -> None:
    terminal.err.write(f"serving the Kubernetes API on {server.url}\n")
    if out is None:
        terminal.out.write(server.kubeconfig().decode() + "\n")
    else:
        write_private(out, server.kubeconfig())
        terminal.err.write(f"try: kubectl --kubeconfig {out} get nodes\n")
    terminal.out.flush()
    terminal.err.flush()
