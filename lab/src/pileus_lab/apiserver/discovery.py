"""What the server has: groups, versions, resources, in the plain and in the aggregated form."""

from collections.abc import Iterable

from pileus.version import KUBERNETES
from pileus_lab.apiserver.resource import Resource
from pileus_lab.apiserver.resources.catalog import Catalog
from pileus_lab.apiserver.tree import Obj

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def wants_aggregated(accept: str) -> bool:
    return any(
        "as=APIGroupDiscoveryList" in part and "v=v2" in _split(part) for part in accept.split(",")
    )


def _split(part: str) -> list[str]:
    return [piece.strip() for piece in part.split(";")]


def versions(address: str) -> Obj:
    """Return `/api`."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def groups(catalog: Catalog) -> Obj:
    """Return `/apis`."""
    listed = [_group(name, version) for name, version in catalog.groups() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def group(catalog: Catalog, name: str) -> Obj | None:
    """Return `/apis/<group>`."""
    found = [version for known, version in catalog.groups() if known == name and name]
    if not found:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, found[0])}


def _group(name: str, version: str) -> Obj:
    served = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [served], "preferredVersion": served}


def resources(catalog: Catalog, name: str, version: str) -> Obj | None:
    """Return `/api/v1` and `/apis/<group>/<version>`."""
    found = catalog.groups().get((name, version))
    if found is None:
        return None
    whole = f"{name}/{version}" if name else version
    listed = [entry for resource in found for entry in _entries(resource)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": whole,
        "resources": listed,
    }


def _entries(resource: Resource) -> Iterable[Obj]:
    entry: Obj = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    yield entry | _names(resource)
    for sub in resource.subresources:
        typed = {"group": sub.group, "version": sub.version} if sub.group else {}
        yield {
            "name": f"{resource.plural}/{sub.name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            **typed,
            "kind": sub.kind,
            "verbs": list(sub.verbs),
        }


def _names(resource: Resource) -> Obj:
    names: Obj = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {k: v for k, v in names.items() if v}


def aggregated(catalog: Catalog, *, core: bool) -> Obj:
    """Return `/api` or `/apis`, all in one."""
    chosen = [(key, found) for key, found in catalog.groups().items() if (not key[0]) == core]
    listed = [_aggregated_group(name, version, found) for (name, version), found in chosen]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": listed,
    }


def _aggregated_group(name: str, version: str, found: list[Resource]) -> Obj:
    described = [_aggregated_resource(resource) for resource in found]
    served = {"version": version, "resources": described, "freshness": "Current"}
    return {"metadata": {"name": name} if name else {}, "versions": [served]}


def _aggregated_resource(resource: Resource) -> Obj:
    subresources = [
        {
            "subresource": sub.name,
            "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
            "verbs": list(sub.verbs),
        }
        for sub in resource.subresources
    ]
    entry: Obj = {
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    entry |= _names(resource)
    return entry | ({"subresources": subresources} if subresources else {})


def version() -> Obj:
    """Return `/version`."""
    major, minor = KUBERNETES.removeprefix("v").split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"{KUBERNETES}+pileus",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


def paths(catalog: Catalog) -> Obj:
    """Return `/`."""
    found = ["/api", "/api/v1", "/apis"]
    for name, served in catalog.groups():
        found += [f"/apis/{name}", f"/apis/{name}/{served}"] if name else []
    found += ["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
    return {"paths": sorted(found)}
