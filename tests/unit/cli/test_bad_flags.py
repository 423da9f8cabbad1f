"""Every bad value of every flag ends the manager with code 1 before anything starts."""

import asyncio
import io
import itertools
import re
import socket
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.app.manager import Manager
from pileus.app.run import ending_of
from pileus.app.settings import TABLE, ManagerSettings
from pileus.app.startup import World
from pileus.cli.run import main
from pileus.cli.terminal import Terminal
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.registry import Registry
from pileus.controllers.ipam.settings import IpamSettings, sizes
from pileus.controllers.route.settings import RouteSettings
from pileus.kube.access import Access
from pileus.kube.transport import Reply, Request
from pileus.objects.ranges import Range, parse_ranges
from pileus.objects.settings import ClusterSettings
from pileus.runtime.leadership import SYSTEM_TIMES
from pileus.settings.config import Config
from pileus.settings.flags import AnyFlag
from pileus.telemetry.logs import Verbosity
from tests.unit.app.test_route import NoRoutes

PORT = {
    "cert-dir",
    "client-ca-file",
    "requestheader-client-ca-file",
    "authentication-kubeconfig",
    "authorization-kubeconfig",
    "tls-sni-cert-key",
}
"""Flags that are only read if the secure port is served."""
IPAM_ON = ("--controllers=*,node-ipam-controller", "--allocate-node-cidrs")
WITH: Mapping[str, tuple[str, ...]] = {
    "cidr-allocator-type": (*IPAM_ON, "--cluster-cidr=10.0.0.0/8"),
    "cluster-cidr": IPAM_ON,
    "service-cluster-ip-range": (*IPAM_ON, "--cluster-cidr=10.0.0.0/8"),
    "leader-migration-config": ("--enable-leader-migration",),
    "log-text-info-buffer-size": ("--feature-gates=LoggingAlphaOptions=true",),
    "log-json-info-buffer-size": ("--feature-gates=LoggingAlphaOptions=true",),
}
"""Flags that are only read together with others."""

BY_KIND: Mapping[str, tuple[str, ...]] = {
    "": ("maybe", "2", "yes"),
    "int": ("x", "1.5", "", "9223372036854775808", "-1"),
    "int32": ("x", "1.5", "", "2147483648", "-1"),
    "Level": ("x", "-1", "2147483648"),
    "float32": ("x", "", "1e39", "nan", "inf"),
    "duration": ("5", "x", "", "1h1", "5 s", "2562048h", "-1s"),
    "strings": ('a"b', '"a'),
    "int32Slice": ("x", "1,", "2147483648"),
    "ip": ("x", "300.0.0.1", "fe80::1%eth0", "10.0.0.0/8"),
    "quantity": ("x", "5 MB", "-1"),
    "namedCertKey": ("x", "a,b:", "a,b:x,,y"),
    "pattern=N,...": ("x", "a=b", "a=-1"),
    "mapStringBool": ("Nonsense=true", "AllAlpha", "AllAlpha=maybe"),
    "version": ("x", "v1", "v9.9.9"),
    "list of clouds": ("x", "[]"),
    "string": (),
}
"""Values that no flag of the kind takes. `{here}` is a folder without the file `absent`."""

FILE = ("{here}/absent", "{here}")
RANGE = (
    "garbage",
    "10.244.0.0",
    "10.244.0.0/33",
    "10.244.0.0/-1",
    "10.0.0.0/8,10.244.0.0/16",
    "10.244.0.0/16,10.244.0.0/16",
    "fd00::/48,fd01::/48",
    "10.0.0.0/8,fd00::/48,fd01::/48",
    "10.244.0.0/16,",
    " ",
)
BY_NAME: Mapping[str, tuple[str, ...]] = {
    "authentication-kubeconfig": FILE,
    "authorization-always-allow-paths": ("/a*/b",),
    "authorization-kubeconfig": FILE,
    "cert-dir": ("{here}/file/below",),
    "cidr-allocator-type": ("garbage", ""),
    "client-ca-file": FILE,
    "history-file": ("{here}/missing/history.jsonl", "{here}"),
    "otlp-endpoint": ("collector", "ftp://collector"),
    "cloud-config": FILE,
    "cloud-provider": ("", "goood", "external", "good,good", "good,"),
    "cluster-cidr": RANGE,
    "concurrent-node-lifecycle-syncs": ("0",),
    "concurrent-node-syncs": ("0",),
    "concurrent-service-syncs": ("0",),
    "config": FILE,
    "controllers": ("garbage", "*,-garbage"),
    "kubeconfig": FILE,
    "leader-elect-resource-lock": ("endpoints", ""),
    "leader-elect-resource-name": ("", "Not a name", "-a", "a" * 254),
    "leader-elect-resource-namespace": ("", "Not a name", "a.b", "a" * 64),
    "leader-migration-config": FILE,
    "log-flush-frequency": ("0s",),
    "logging-format": ("xml", ""),
    "master": ("ftp://x", "http://", "https://a:99999"),
    "node-cidr-mask-size": ("129",),
    "node-cidr-mask-size-ipv4": ("33",),
    "node-cidr-mask-size-ipv6": ("129",),
    "node-deletion-max-fraction": ("0", "-0.1", "1.1"),
    "node-deletion-policy": ("garbage", ""),
    "node-deletion-window": ("0s",),
    "node-identity": ("garbage", ""),
    "node-monitor-period": ("0s",),
    "node-status-update-frequency": ("0s",),
    "requestheader-allowed-names": ("a,,b",),
    "requestheader-client-ca-file": FILE,
    "requestheader-extra-headers-prefix": ("a,,b",),
    "requestheader-group-headers": ("a,,b",),
    "requestheader-uid-headers": ("a,,X-Remote-Uid", "X-Other"),
    "requestheader-username-headers": ("a,,b",),
    "route-ownership": ("garbage", ""),
    "route-reconciliation-period": ("0s",),
    "secure-port": ("65536", "10260"),
    "service-classes": ("no-slash", "a b/c"),
    "service-cluster-ip-range": RANGE,
    "service-orphans": ("garbage", ""),
    "ssh-keys-from": ("garbage", "secret:keys", "file:"),
    "tls-cert-file": ("{here}/absent",),
    "tls-cipher-suites": ("TLS_GARBAGE",),
    "tls-curve-preferences": ("1", "-23"),
    "tls-min-version": ("1.2", "garbage"),
    "tls-private-key-file": ("{here}/absent",),
    "tls-sni-cert-key": ("{here}/absent,{here}/absent",),
    "webhook-secure-port": ("65536",),
    "webhook-tls-cert-file": ("{here}/absent",),
    "webhook-tls-cipher-suites": ("TLS_GARBAGE",),
    "webhook-tls-curve-preferences": ("1",),
    "webhook-tls-min-version": ("garbage",),
    "webhook-tls-private-key-file": ("{here}/absent",),
    "webhooks": ("garbage",),
}
"""Values that are of the right kind, but make no sense for the flag."""

FREE: Mapping[str, str] = {
    "cluster-id": "any text is an id",
    "cluster-name": "any text is a name",
    "external-cloud-volume-plugin": "accepted without effect",
    "kube-api-content-type": "accepted without effect",
    "webhook-cert-dir": "read when a webhook is served; there is none",
}
NEGATIVE: Mapping[str, str] = {
    "concurrent-node-status-updates": "as many as --concurrent-node-syncs",
    "kube-api-qps": "no limit",
    "http2-max-streams-per-connection": "without effect",
    "node-sync-period": "without effect",
}
"""Flags for which a negative number means something."""


class NoNetwork:
    """A connection on which nothing may be sent."""

    host = "nowhere"

    def __init__(self, access: Access) -> None:
        self._access = access

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def send(self, request: Request) -> AbstractAsyncContextManager[Reply]:
        raise AssertionError(f"a request was sent: {request.method} {request.path}")


@dataclass
class Called:
    """One call of the manager, up to its first connection."""

    code: int = -1
    err: str = ""
    clouds: list[ProviderConfig] = field(default_factory=list[ProviderConfig])


class Reached(Exception):
    """The start-up got as far as the cloud: all flags were accepted."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def called(*arguments: str) -> Called:
    result = Called()

    @asynccontextmanager
    async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
        result.clouds.append(config)
        raise Reached
        yield Cloud(name="good")

    registry = Registry(lambda: ())
    registry.register("good", connect)

    def start(config: Config, verbosity: Verbosity) -> int:
        world = World(
            {}, SYSTEM_TIMES, Random(1), verbosity.set, providers=registry, connect=NoNetwork
        )
        try:
            asyncio.run(Manager(config, world).run())
        except BaseExceptionGroup as errors:
            raise ending_of(errors) from None
        return 0

    err = io.StringIO()
    terminal = Terminal(io.StringIO(), err, {})
    line = (
        "--cloud-provider=good",
        "--master=http://127.0.0.1:1",
        "--bind-address=127.0.0.1",
        "--authentication-skip-lookup",
        *arguments,
    )
    result.code = main("cloud-controller-manager", line, terminal, start)
    result.err = err.getvalue()
    return result


def bad_values() -> Iterator[object]:
    for flag in TABLE:
        negative = {"-1", "-1s"} if flag.name in NEGATIVE else set[str]()
        values = [value for value in BY_KIND[flag.kind.name] if value not in negative]
        for value in (*values, *BY_NAME.get(flag.name, ())):
            yield pytest.param(flag, value, id=f"--{flag.name}={value}")


def test_every_flag_has_bad_values_or_a_reason_to_have_none():
    texts = {flag.name for flag in TABLE if flag.kind.name == "string"}
    named = set(BY_NAME)

    assert texts - named == set(FREE)
    assert named | set(NEGATIVE) | set(WITH) <= {flag.name for flag in TABLE}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("")
    return tmp_path


@pytest.mark.real_time
@pytest.mark.parametrize(("flag", "value"), list(bad_values()))
def test_a_bad_value_ends_with_1_and_names_its_flag_before_anything_starts(
    here: Path, flag: AnyFlag, value: str
):
    given = value.replace("{here}", str(here))

    port = f"--secure-port={free_port() if flag.name in PORT else 0}"

    result = called(port, *WITH.get(flag.name, ()), f"--{flag.name}={given}")

    assert result.code == 1, result.err
    assert re.search(rf"(?<![\w-])(--)?{flag.name}(?![\w-])", result.err), result.err
    assert result.clouds == []
    assert "Traceback" not in result.err


POD_RANGES = ("", "10.244.0.0/16", "fd00::/48", "10.244.0.0/16,fd00::/48", "10.244.0.1/16", "x")
SERVICE_RANGES = ("", "10.96.0.0/12", "10.244.0.0/17", "10.0.0.0/8", "fd00::/112", "x")
MASKS = ("", "0", "8", "24", "64", "80", "-1", "200")


@pytest.mark.parametrize("allocate", [(), ("--allocate-node-cidrs",), IPAM_ON])
@pytest.mark.parametrize("pods", POD_RANGES)
def test_ranges_that_start_can_be_used_and_others_name_a_flag(pods: str, allocate: tuple[str, ...]):
    for services, mask in itertools.product(SERVICE_RANGES, MASKS):
        flags = {
            "cluster-cidr": pods,
            "service-cluster-ip-range": services,
            "node-cidr-mask-size": mask,
        }
        line = [f"--{name}={value}" for name, value in flags.items() if value]

        check_combination(line, allocate)


@given(
    pods=st.text("0123456789./:,fd ", max_size=40),
    services=st.text("0123456789./:,fd ", max_size=40),
    mask=st.integers(-200, 200),
)
def test_no_text_of_ranges_gets_past_the_start_and_fails_later(pods: str, services: str, mask: int):
    line = [
        f"--cluster-cidr={pods}",
        f"--service-cluster-ip-range={services}",
        f"--node-cidr-mask-size={mask}",
    ]
    check_combination(line, IPAM_ON)


def check_combination(line: list[str], allocate: tuple[str, ...]) -> None:
    started: list[Config] = []
    err = io.StringIO()

    def start(config: Config, _: Verbosity) -> int:
        started.append(config)
        return 0

    terminal = Terminal(io.StringIO(), err, {})
    code = main("ccm", ("--cloud-provider=local", *line, *allocate), terminal, start)

    if started:
        assert code == 0
        usable(started[0])
    else:
        assert code == 1
        assert re.search(
            r"--?(cluster-cidr|service-cluster-ip-range)|node-cidr-mask-size", err.getvalue()
        )


def usable(config: Config) -> None:
    """What the route and node-ipam controllers do first with their flags."""
    routed = Cloud(name="good", routes=NoRoutes())
    if config[ClusterSettings].cidr and not any(config[RouteSettings].problems_with(routed)):
        parse_ranges(config[ClusterSettings].cidr)
    if "node-ipam-controller" in config[ManagerSettings].controllers:
        found = sizes(config[IpamSettings])
        for pool in found.pools:
            ends = (pool.range.network_address, pool.range.broadcast_address)
            blocks = [ip_network(f"{end}/{pool.mask}", strict=False) for end in ends]
            assert any(not is_taken(block, found.services) for block in blocks)


def is_taken(block: Range, services: tuple[Range, ...]) -> bool:
    return any(
        str(block.version) == str(each.version) and block.overlaps(each) for each in services
    )
