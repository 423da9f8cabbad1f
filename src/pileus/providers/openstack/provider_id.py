"""Provider IDs of servers: `openstack:///ID`, `openstack://REGION/ID`, `/ID`, or only the ID.

Nodes that the Go cloud-controller-manager initialized have one of these forms, and all of them are
accepted. `OS_CCM_REGIONAL=true` decides which one new nodes get.
"""

import re

from pileus.cloud.errors import Rejected
from pileus.cloud.model import NodeRef
from pileus.dataclass import dataclass
from pileus.fix import quoted

SCHEME = "openstack"
_FORM = re.compile(r"([A-Za-z][-+.A-Za-z0-9]*)://([^/]*)/([^/]+)")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class ProviderIds:
    """Reads and writes the provider IDs of one region."""

    region: str
    is_regional: bool = False
    """Whether provider IDs that are written have the region."""

    def text(self, server_id: str) -> str:
        return f"{SCHEME}://{self.region if self.is_regional else ''}/{server_id}"

    def texts(self, server_id: str) -> frozenset[str]:
        """Returns all forms that nodes of this region may have, as `server_id` reads them."""
        schemes = (f"{SCHEME}:///", f"{SCHEME}://{self.region}/", "/", "")
        return frozenset(f"{one}{id_}" for one in schemes for id_ in (server_id, server_id.upper()))

    def server_id(self, node: NodeRef) -> str:
        """Returns the ID of the node's server; empty if the node has no provider ID yet.

        Raises `Rejected` if the provider ID is not one of a server in this region. Nothing is
        concluded about such a node: it is not a machine of this cloud, which is not the same as a
        machine that was deleted.
        """
        text = node.provider_id
        if not text:
            return ""
        scheme, region, server = _parts(text)
        if scheme != SCHEME:
            raise Rejected(f"provider ID {quoted(text)} is not one of OpenStack")
        if region not in {"", self.region}:
            raise Rejected(
                f"provider ID {quoted(text)} is of region {quoted(region)}, this manager runs in "
                f'region "{self.region}"'
            )
        if not _UUID.fullmatch(server):
            raise Rejected(
                f"provider ID {quoted(text)} has no server ID. Expected {SCHEME}:///SERVER-UUID or "
                f"{SCHEME}://REGION/SERVER-UUID"
            )
        return server

    def owns(self, node: NodeRef) -> bool | None:
        """Whether the node is a server of this region; None: not known before a lookup."""
        if "://" not in node.provider_id:
            return None
        scheme, region, _ = _parts(node.provider_id)
        return scheme == SCHEME and region in {"", self.region}


def system_uuid(node: NodeRef) -> str:
    """Returns the UUID that the machine's firmware reports, if it can be the ID of a server.

    With KVM it is the ID; other hypervisors report a UUID of their own.
    """
    text = node.system_uuid.lower()
    return text if _UUID.fullmatch(text) else ""


def _parts(text: str) -> tuple[str, str, str]:
    """Returns scheme, region and server ID; empty where the text has none."""
    if "://" not in text:
        return SCHEME, "", text.removeprefix("/").lower()
    match = _FORM.fullmatch(text)
    if match is None:
        return text.partition("://")[0], "", ""
    return match[1], match[2], match[3].lower()
