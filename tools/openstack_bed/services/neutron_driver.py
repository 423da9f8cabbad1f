"""Neutron ML2 mechanism driver that binds every port at once, without an agent."""

from typing import Any

from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api


class BedMechanismDriver(api.MechanismDriver):
    """Binds a port to the first segment of its network and sets it ACTIVE."""

    def initialize(self) -> None:
        """Does nothing: there is no agent to prepare."""

    @property
    def connectivity(self) -> str:
        return portbindings.CONNECTIVITY_L2

    def bind_port(self, context: Any) -> None:
        for segment in context.segments_to_bind[:1]:
            context.set_binding(
                segment[api.ID],
                portbindings.VIF_TYPE_OVS,
                {portbindings.CAP_PORT_FILTER: True},
                status=constants.PORT_STATUS_ACTIVE,
            )
