"""Discovery: groups, versions and resources, and OpenAPI v3 from the field tables."""

from collections.abc import Iterable, Iterator

from pileus.version import KUBERNETES
from pileus_lab.apiserver.resource import Resource
from pileus_lab.apiserver.resources.catalog import Catalog
from pileus_lab.apiserver.schema import field_tables
from pileus_lab.apiserver.tree import Obj, grow

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
    """Return `/api` or `/apis` in the aggregated form."""
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


TITLE = "Pileus"
PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_PROTOBUF_V2_ASKED = ("spec.v2@v1.0+protobuf", "spec.v2.v1.0+protobuf")
"""The older media type, which clients request; it is not valid and never used in answers."""
_PLAIN: dict[str, Obj] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "uint8": {"type": "integer"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "bytes": {"type": "string", "format": "byte"},
}
_NAMED: dict[str, tuple[str, Obj]] = {
    "quantity": (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        {"oneOf": [{"type": "string"}, {"type": "number"}]},
    ),
    "intorstring": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
    ),
    "any": ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", {"type": "object"}),
}
"""Plain values with a name of their own."""
_METHODS = {"create": "post", "update": "put", "patch": "patch", "delete": "delete", "get": "get"}
_WRITES = frozenset({"create", "update", "patch"})


def document_v2() -> Obj:
    """Return `/openapi/v2`."""
    info = {"title": TITLE, "version": KUBERNETES}
    return {"swagger": "2.0", "info": info, "paths": {}, "definitions": {}}


def wants_protobuf_v2(accept: str) -> bool:
    return any(name in accept for name in _PROTOBUF_V2_ASKED)


def document_v2_protobuf() -> bytes:
    """Return `/openapi/v2` in the form that kubectl requests."""
    info = _bytes_field(1, TITLE.encode()) + _bytes_field(2, KUBERNETES.encode())
    parts = ((1, b"2.0"), (2, info), (8, b""), (9, b""))
    return b"".join(_bytes_field(number, value) for number, value in parts)


def _bytes_field(number: int, value: bytes) -> bytes:
    """Returns a short length-delimited protobuf field."""
    return bytes((number << 3 | 2, len(value))) + value


def index(catalog: Catalog) -> Obj:
    """Return `/openapi/v3`."""
    found = {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in _paths(catalog)}
    return {"paths": found}


def _paths(catalog: Catalog) -> Iterator[str]:
    for group, version in catalog.groups():
        yield f"apis/{group}/{version}" if group else f"api/{version}"


def document(catalog: Catalog, path: str) -> Obj | None:
    """Return `/openapi/v3/<path>`."""
    for (group, version), found in catalog.groups().items():
        if path == (f"apis/{group}/{version}" if group else f"api/{version}"):
            return _document(path, found)
    return None


def _document(root: str, found: list[Resource]) -> Obj:
    paths: Obj = {}
    schemas: Obj = {}
    for resource in found:
        _describe(root, resource, paths)
        _add(resource.schema, schemas)
        kind = {"group": resource.group, "kind": resource.kind, "version": resource.version}
        grow(schemas, _name(resource.schema))["x-kubernetes-group-version-kind"] = [kind]
    return {
        "openapi": "3.0.0",
        "info": {"title": TITLE, "version": KUBERNETES},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _describe(root: str, resource: Resource, paths: Obj) -> None:
    base = f"/{root}/namespaces/{{namespace}}" if resource.namespaced else f"/{root}"
    collection, single = f"{base}/{resource.plural}", f"{base}/{resource.plural}/{{name}}"
    for verb in resource.verbs:
        method = _METHODS.get(verb)
        if method is None:
            continue
        path = collection if verb == "create" else single
        grow(paths, path)[method] = _operation(resource, verb)


def _operation(resource: Resource, verb: str) -> Obj:
    reference = {"$ref": f"#/components/schemas/{_name(resource.schema)}"}
    content = {"application/json": {"schema": reference}}
    operation: Obj = {
        "operationId": f"{verb}{resource.kind}",
        "parameters": [_parameter(p) for p in _parameters(verb)],
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": {
            "group": resource.group,
            "kind": resource.kind,
            "version": resource.version,
        },
    }
    if verb in _WRITES:
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameters(verb: str) -> tuple[str, ...]:
    return ("dryRun", "fieldManager", "fieldValidation") if verb in _WRITES else ()


def _parameter(name: str) -> Obj:
    return {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}


def _name(type_name: str) -> str:
    package, _, kind = type_name.partition(".")
    where = "apimachinery.pkg.apis" if package == "meta" else "api"
    return f"io.k8s.{where}.{package}.v1.{kind}"


def _add(type_name: str, schemas: Obj) -> None:
    """Adds the type and all types that it refers to."""
    if _name(type_name) in schemas:
        return
    described = field_tables.types()[type_name]
    properties = {field.name: _property(field) for field in described.fields.values()}
    required = [name for name, field in described.fields.items() if "required" in field.flags]
    schema: Obj = {"type": "object", "properties": properties}
    schemas[_name(type_name)] = schema | ({"required": required} if required else {})
    for field in described.fields.values():
        if field.target in _NAMED:
            name, value = _NAMED[field.target]
            schemas[name] = value
        if field.has_fields:
            _add(field.target, schemas)


def _property(field: field_tables.Field) -> Obj:
    described = _written(field.type.lstrip("*"))
    if field.merge_key:
        described["x-kubernetes-patch-merge-key"] = field.merge_key
    strategies = [s for s, has in _strategies(field) if has]
    if strategies:
        described["x-kubernetes-patch-strategy"] = ",".join(strategies)
    return described


def _strategies(field: field_tables.Field) -> list[tuple[str, bool]]:
    return [
        ("merge", field.merge_key is not None),
        ("replace", "replace" in field.flags),
        ("retainKeys", "retainKeys" in field.flags),
    ]


def _written(written: str) -> Obj:
    if written.startswith("[]"):
        return {"type": "array", "items": _written(written[2:])}
    if written.startswith("map:"):
        return {"type": "object", "additionalProperties": _written(written[4:])}
    if written in _PLAIN:
        return dict(_PLAIN[written])
    name = _NAMED[written][0] if written in _NAMED else _name(written)
    return {"allOf": [{"$ref": f"#/components/schemas/{name}"}]}
