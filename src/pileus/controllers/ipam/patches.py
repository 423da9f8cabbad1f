"""The write to a node as the API server takes it. Pure."""

from pileus.kube.model.core_v1 import Node
from pileus.kube.patch import StrategicPatch
from pileus.objects.ranges import Range


def ranges_patch(node: Node, ranges: tuple[Range, ...]) -> tuple[StrategicPatch, str]:
    """Made from this very version of the node: one that has got ranges meanwhile is a conflict.

    The API server lets pod ranges be set once and never changed.
    """
    texts = [str(each) for each in ranges]
    metadata = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    spec = {"podCIDR": texts[0], "podCIDRs": texts}
    return StrategicPatch({"metadata": metadata, "spec": spec}), ""
