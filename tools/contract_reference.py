"""Write docs/reference/provider-contract.md from the classes of the provider contract."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

from tools.reference_page import write

from pileus.cloud import abilities, balancer, interface, model, volume

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "provider-contract.md"
SECTIONS: Mapping[str, tuple[ModuleType, tuple[str, ...]]] = {
    "The cloud": (interface, ("Cloud", "ProviderConfig", "OwnController")),
    "Abilities": (
        abilities,
        ("Abilities", "Affinity", "Requests", "PagedList", "Limits", "Deadlines", "Batches"),
    ),
    "Machines and routes": (
        model,
        (
            "NodeRef",
            "Instance",
            "InstanceState",
            "Address",
            "AddressType",
            "Absent",
            "Failure",
            "Route",
            "SshKey",
            "NodeKeys",
            "Zone",
        ),
    ),
    "Load balancers": (
        balancer,
        (
            "Wish",
            "BalancerSpec",
            "Listener",
            "HealthCheck",
            "Owner",
            "Balancer",
            "BalancerState",
            "Ingress",
            "PortStatus",
            "Notice",
            "Effect",
            "Part",
        ),
    ),
    "Volumes": (
        volume,
        (
            "VolumeSpec",
            "FromSnapshot",
            "FromVolume",
            "Volume",
            "VolumeState",
            "Attachment",
            "SnapshotSpec",
            "Snapshot",
            "SnapshotState",
            "VolumeLimits",
            "VolumeCapacity",
            "VolumeNames",
        ),
    ),
}
"""The classes of each section, and the module that they are in."""
TEXT = """# Provider contract

The values that a provider gets, returns and declares, with all fields. `make docs` generates this
page from `pileus.cloud`. [Write a provider](../guides/write-a-provider.md) explains how they are
used; the methods are described in the code.
"""


def page() -> str:
    return TEXT + "".join(map(_section, SECTIONS))


def _section(title: str) -> str:
    module, names = SECTIONS[title]
    found = classes(module)
    tables = "".join(_table(name, found[name]) for name in names)
    return f"\n## {title}\n\nModule `{module.__name__}`.\n{tables}"


def classes(module: ModuleType) -> Mapping[str, ast.ClassDef]:
    """Returns the classes of a module by name."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    return {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}


def fields_of(made: ast.ClassDef) -> Iterator[tuple[str, str, str, str]]:
    """Yields name, type, default and description of each field, or member of an enumeration."""
    following = (*made.body[1:], None)
    for node, after in zip(made.body, following, strict=True):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=value):
                yield name, ast.unparse(kind), _default(value), _text(after)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, "", ast.unparse(value), _text(after)
            case _:
                pass


def _default(value: ast.expr | None) -> str:
    match value:
        case None:
            return ""
        case ast.Call(func=ast.Name(id="field"), keywords=given):
            named = {one.arg: ast.unparse(one.value) for one in given}
            made = named.get("default_factory", "")
            return named.get("default") or (f"{made}()" if made else "")
        case _:
            return ast.unparse(value)


def _text(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            return " ".join(text.split())
        case _:
            return ""


def _table(name: str, made: ast.ClassDef) -> str:
    rows = "".join(
        f"| `{field}` | {_code(kind)} | {_code(default)} | {_cell(text)} |\n"
        for field, kind, default, text in fields_of(made)
    )
    about = " ".join((ast.get_docstring(made) or "").split())
    lead = f"\n### {name}\n\n{about}\n\n" if about else f"\n### {name}\n\n"
    return f"{lead}| field | type | default or value | meaning |\n|---|---|---|---|\n{rows}"


def _code(text: str) -> str:
    return f"`{text.replace(' | ', ' or ')}`" if text else ""


def _cell(text: str) -> str:
    return re.sub(r"\s*\|\s*", " or ", text)


if __name__ == "__main__":
    write(PAGE, page())
