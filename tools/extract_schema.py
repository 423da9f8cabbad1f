"""Write the field tables of lab/src/pileus_lab/apiserver/schema/ from Kubernetes' Go types.

    tools/extract_schema.py ~/go/pkg/mod 0.37.1 lab/src/pileus_lab/apiserver/schema

Only facts are taken, of the kinds in ROOTS and whatever they refer to: each field's JSON name,
type, protobuf number, `omitempty`, patch strategy, and whether it is required.
`apiserver/schema/table.py` has the format.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = {
    "meta": "apimachinery@v{}/pkg/apis/meta/v1",
    "core": "api@v{}/core/v1",
    "discovery": "api@v{}/discovery/v1",
    "coordination": "api@v{}/coordination/v1",
    "events": "api@v{}/events/v1",
    "authentication": "api@v{}/authentication/v1",
    "authorization": "api@v{}/authorization/v1",
    "rbac": "api@v{}/rbac/v1",
    "policy": "api@v{}/policy/v1",
    "storage": "api@v{}/storage/v1",
}
ROOTS = (
    *("meta.DeleteOptions", "core.Namespace", "core.Node", "core.Service", "core.Pod"),
    *("core.Event", "core.ConfigMap", "core.Secret", "core.ServiceAccount", "core.Binding"),
    *("discovery.EndpointSlice", "coordination.Lease", "events.Event", "policy.Eviction"),
    *("authentication.TokenReview", "authentication.TokenRequest"),
    *("authentication.SelfSubjectReview", "authorization.SubjectAccessReview"),
    *("authorization.SelfSubjectAccessReview", "authorization.LocalSubjectAccessReview"),
    *("authorization.SelfSubjectRulesReview", "rbac.Role", "rbac.ClusterRole"),
    *("rbac.RoleBinding", "rbac.ClusterRoleBinding"),
    *("core.PersistentVolume", "core.PersistentVolumeClaim"),
    *("storage.StorageClass", "storage.VolumeAttachment", "storage.CSIDriver"),
)
ALIASES = {"metav1": "meta", "v1": "core", "corev1": "core", "types": "string"}
LEAVES = {
    "meta.Time": "time",
    "meta.MicroTime": "microtime",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intorstring",
    "runtime.RawExtension": "any",
    "meta.FieldsV1": "any",
    "[]byte": "bytes",
    "byte": "uint8",
}
PLAIN = frozenset({"string", "bool", "int32", "int64", "uint8", "int", *LEAVES.values()})
FIELD = re.compile(r"^\s+(?:(\w+)\s+)?([\w.*\[\]]+)\s+`(.*)`")
MARK = re.compile(r"^\s*//\s*\+(?:k8s:)?(required|optional)\b")


@dataclass
class Field:
    name: str
    type: str
    flags: list[str] = field(default_factory=list[str])

    def inside(self, number: str) -> "Field":
        """Return the field as part of an embedded struct, which protobuf keeps apart."""
        if number:
            flags = [f.replace("#", f"#{number}.") for f in self.flags]
        else:  # TypeMeta: the envelope carries it
            flags = [f for f in self.flags if not f.startswith("#")]
        return Field(self.name, self.type, flags)


@dataclass
class Source:
    """The Go types of all packages, as written."""

    structs: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    named: dict[str, str] = field(default_factory=dict[str, str])

    def read(self, package: str, text: str) -> None:
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        structs = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
        for found in structs.finditer(text):
            self.structs[f"{package}.{found[1]}"] = found[2].splitlines()
        for found in re.finditer(r"^type (\w+) ([\w.\[\]]+)$", text, re.MULTILINE):
            self.named[f"{package}.{found[1]}"] = found[2]

    def resolve(self, package: str, written: str) -> str:
        """Return the type in our words: `*[]map:` prefixes and a plain or qualified name."""
        if written in LEAVES:
            return LEAVES[written]
        for prefix, ours in (("*", "*"), ("[]", "[]"), ("map[string]", "map:")):
            if written.startswith(prefix):
                return ours + self.resolve(package, written[len(prefix) :])
        if written.startswith("map["):
            return "map:" + self.resolve(package, written.split("]", 1)[1])
        return self._named(self._qualified(package, written))

    def _qualified(self, package: str, written: str) -> str:
        head, _, tail = written.rpartition(".")
        if head == "types":
            return "string"
        if head:
            return f"{ALIASES.get(head, head)}.{tail}"
        return written if written in PLAIN else f"{package}.{written}"

    def _named(self, name: str) -> str:
        if name in LEAVES:
            return LEAVES[name]
        if name in self.named and name not in self.structs:
            return self.resolve(name.split(".", maxsplit=1)[0], self.named[name])
        return name

    def fields(self, name: str) -> list[Field]:
        package = name.split(".", maxsplit=1)[0]
        found: list[Field] = []
        marked: set[str] = set()
        for line in self.structs[name]:
            match = FIELD.match(line.split("//")[0] if "`" not in line else line)
            if match is None:
                marked |= set(MARK.findall(line))
                continue
            tags = dict(re.findall(r'(\w+):"([^"]*)"', match[3]))
            json, *options = tags.get("json", "").split(",")
            number = tags.get("protobuf", ",").split(",")[1]
            if "inline" in options or (not json and not match[1]):
                embedded = self.resolve(package, match[2]).lstrip("*")
                found += [f.inside(number) for f in self.fields(embedded) if f.name != "-"]
            elif json:
                marks = [f"#{number}"] if number else []
                marks += flags(options, tags)
                marks += ["required"] if is_required(options, marked) else []
                found.append(Field(json, self.resolve(package, match[2]), marks))
            marked = set()
        return found


def is_required(options: list[str], marked: set[str]) -> bool:
    """Whether OpenAPI says so: the comment decides, or else `omitempty`."""
    if "required" in marked or "optional" in marked:
        return "required" in marked
    return "omitempty" not in options


def flags(options: list[str], tags: dict[str, str]) -> list[str]:
    found = ["omitempty"] if "omitempty" in options else []
    found += ["omitzero"] if "omitzero" in options else []
    strategies = tags.get("patchStrategy", "").split(",")
    if "merge" in strategies:
        found.append(f"merge={tags.get('patchMergeKey', '')}".rstrip("="))
    found += [s for s in strategies if s in {"replace", "retainKeys"}]
    return found


def main(cache: Path, version: str, out: Path) -> None:
    source = Source()
    for package, folder in PACKAGES.items():
        for file in sorted((cache / "k8s.io" / folder.format(version)).glob("*types*.go")):
            source.read(package, file.read_text())
    waiting = list(ROOTS)
    tables: dict[str, dict[str, list[Field]]] = {}
    while waiting:
        package, _, kind = (name := waiting.pop()).partition(".")
        if kind in tables.setdefault(package, {}):
            continue
        tables[package][kind] = source.fields(name)
        targets = (re.sub(r"\*|\[\]|map:", "", f.type) for f in tables[package][kind])
        waiting += [t for t in targets if t not in PLAIN]
    for package, kinds in tables.items():
        lines = [line for kind in sorted(kinds) for line in table(package, kind, kinds[kind])]
        (out / f"{package}.fields").write_text("\n".join(lines) + "\n")


def table(package: str, kind: str, fields: list[Field]) -> list[str]:
    rows = [" ".join(("", f.name, f.type.replace(f"{package}.", ""), *f.flags)) for f in fields]
    return [kind, *rows]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
