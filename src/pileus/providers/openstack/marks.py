"""Marks of objects in OpenStack: tags with the IDs of their cluster and their Service.

    tags_of(owner)     ("pileus.dev/cluster=<cluster ID>", "pileus.dev/service=<UID>")
    owner_of(tags)     the owner again; None if the tags are not a mark

Names and descriptions are those of the Go cloud-controller-manager and are never identity: clusters
with the same `--cluster-name` use the same ones.
"""

from collections.abc import Iterable

from pileus.cloud.balancer import Owner

CLUSTER = "pileus.dev/cluster="
SERVICE = "pileus.dev/service="
CREATED = "pileus.dev/created-for="
"""On a load balancer: set by the request that creates it, with the UID of the Service. One that the
Go program created gets it when it is taken over by proof. Only such load balancers are deleted."""
FOR = "pileus.dev/for="
"""On a load balancer or floating IP, set by an operator: who may use it. See `for_tags`."""
KEPT = "pileus.dev/keep=true"
"""On a floating IP: it is never deleted. Users may set it, too."""


def cluster_tag(cluster: str) -> str:
    return f"{CLUSTER}{cluster}"


def tags_of(owner: Owner) -> tuple[str, str]:
    return cluster_tag(owner.cluster), f"{SERVICE}{owner.uid}"


def for_tags(cluster: str, namespace: str, service: str) -> tuple[str, ...]:
    """Returns the tags that let a Service use an object: for it alone first, then for more."""
    if not namespace or not service:
        return ()
    return tuple(f"{FOR}{cluster}{one}" for one in (f"/{namespace}/{service}", f"/{namespace}", ""))


def for_tag(cluster: str, namespace: str, service: str) -> str:
    """Returns the tag that lets this Service alone use an object; empty: it is not known."""
    return next(iter(for_tags(cluster, namespace, service)), "")


def owner_of(tags: Iterable[str]) -> Owner | None:
    """Returns the owner in the mark; None if there is no mark, or more than one."""
    known = tuple(tags)
    clusters = {tag.removeprefix(CLUSTER) for tag in known if tag.startswith(CLUSTER)}
    services = {tag.removeprefix(SERVICE) for tag in known if tag.startswith(SERVICE)}
    if len(clusters) != 1 or len(services) != 1:
        return None
    return Owner(clusters.pop(), services.pop())


def is_marked(tags: Iterable[str]) -> bool:
    """Returns whether an object has a mark of any owner, or a part of one."""
    return any(tag.startswith((CLUSTER, SERVICE)) for tag in tags)


def without_mark(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(tag for tag in tags if not tag.startswith((CLUSTER, SERVICE)))


def cut(text: str) -> str:
    """Returns at most 255 bytes of the text: the longest name or description in OpenStack."""
    return text.encode()[:255].decode(errors="ignore")
