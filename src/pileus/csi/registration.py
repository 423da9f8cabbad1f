"""Registers the driver with the kubelet of this node, as node-driver-registrar does.

The kubelet watches a folder. It asks each socket in it who serves there, calls the driver, and
answers whether it is registered. After a restart it asks every socket again; after an error it
tries again with increasing delays.
"""

import asyncio
from pathlib import Path
from typing import NoReturn

from pileus.csi.server import InvalidEndpoint, socket_path
from pileus.csi.spec import registration_pb2 as api
from pileus.telemetry.log import Log

log = Log(__name__)

KIND = "CSIPlugin"
VERSIONS = ("1.0.0",)
PATIENCE = 300.0
"""Seconds without a registration after which the process ends, so that the pod shows it."""


class NotRegistered(Exception):
    """The kubelet has not registered the driver. The message says why, as far as known."""


def driver_socket(kubelet: str, driver: str) -> str:
    """Returns the endpoint of a driver for the kubelet with this folder."""
    return f"unix://{kubelet}/plugins/{driver}/csi.sock"


def registration_socket(kubelet: str, driver: str) -> Path:
    """Returns the socket that the kubelet with this folder finds. Raises InvalidEndpoint."""
    folder = Path(kubelet, "plugins_registry")
    if not folder.is_dir():
        raise InvalidEndpoint(
            f"{folder} does not exist, or is not a folder. Fix: set it to --root-dir of the kubelet"
        )
    return socket_path(f"unix://{folder}/{driver}-reg.sock")


class Registration:
    """The service that the kubelet calls, and what it said last."""

    def __init__(self, driver: str, endpoint: Path, socket: Path) -> None:
        self._info = api.PluginInfo(
            type=KIND, name=driver, endpoint=str(endpoint), supported_versions=VERSIONS
        )
        self.socket = socket
        """Where the kubelet finds this service."""
        self.problem = (
            f"it has not asked for the driver at {socket}. Check that the folder is that of a "
            "running kubelet"
        )
        """Why the driver is not registered; empty: it is."""
        self._registered, self._lost = asyncio.Event(), asyncio.Event()

    async def get_info(self, _: api.InfoRequest) -> api.PluginInfo:
        return self._info

    async def notify_registration_status(
        self, status: api.RegistrationStatus
    ) -> api.RegistrationStatusResponse:
        name = self._info.name
        if status.plugin_registered:
            self.problem = ""
            self._lost.clear()
            self._registered.set()
            log.info("Kubelet registered the driver", driver=name)
        else:
            self.problem = status.error or "it gives no reason"
            self._registered.clear()
            self._lost.set()
            log.warning("Kubelet refused the driver", driver=name, err=self.problem)
        return api.RegistrationStatusResponse()

    async def watch(self, patience: float = PATIENCE) -> NoReturn:
        """Wait. Raises NotRegistered if the driver is not registered for so many seconds."""
        while True:
            try:
                async with asyncio.timeout(patience):
                    await self._registered.wait()
            except TimeoutError as error:
                raise NotRegistered(
                    f"the kubelet has not registered the driver {self._info.name} for "
                    f"{patience:g} s: {self.problem}"
                ) from error
            await self._lost.wait()
