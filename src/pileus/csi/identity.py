"""The identity service: who the driver is, and which services it has."""

from collections.abc import Callable
from dataclasses import dataclass

from pileus.csi.spec import csi_pb2 as csi
from pileus.version import PILEUS

Capability = csi.PluginCapability


@dataclass(frozen=True, slots=True)
class Identity:
    name: str
    """Name of the driver."""
    has_controller: bool
    problem: Callable[[], str] = str
    """Returns why the driver cannot be used yet; empty: it can."""

    async def get_plugin_info(self, _: csi.GetPluginInfoRequest) -> csi.GetPluginInfoResponse:
        return csi.GetPluginInfoResponse(name=self.name, vendor_version=PILEUS)

    async def get_plugin_capabilities(
        self, _: csi.GetPluginCapabilitiesRequest
    ) -> csi.GetPluginCapabilitiesResponse:
        answer = csi.GetPluginCapabilitiesResponse()
        service, expansion = Capability.Service, Capability.VolumeExpansion
        if self.has_controller:
            answer.capabilities.add(service=service(type=service.CONTROLLER_SERVICE))
        answer.capabilities.add(service=service(type=service.VOLUME_ACCESSIBILITY_CONSTRAINTS))
        answer.capabilities.add(volume_expansion=expansion(type=expansion.ONLINE))
        return answer

    async def probe(self, _: csi.ProbeRequest) -> csi.ProbeResponse:
        answer = csi.ProbeResponse()
        answer.ready.value = not self.problem()
        return answer
