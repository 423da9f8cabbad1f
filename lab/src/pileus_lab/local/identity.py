"""How the cluster knows this cloud's instances: their provider IDs."""

from pileus.cloud.model import NodeRef

SCHEME = "local"


def provider_id(instance: str) -> str:
    return f"{SCHEME}://{instance}"


def instance_id(text: str) -> str | None:
    """The instance that a provider ID names; None if it is not one of this cloud's."""
    scheme, separator, instance = text.partition("://")
    return instance if separator and scheme == SCHEME and instance else None


def owns(node: NodeRef) -> bool | None:
    return instance_id(node.provider_id) is not None if node.provider_id else None
