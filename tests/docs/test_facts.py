"""Facts that stand in a page and in the code are the same."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from pileus.app.node_assignment import NAME as ASSIGNMENT
from pileus.app.registry import CONTROLLERS
from pileus.app.settings import TABLE
from pileus.controllers.ipam import plan as ipam_plan
from pileus.controllers.lifecycle import plan as lifecycle_plan
from pileus.controllers.lifecycle import reconciler as lifecycle_reconciler
from pileus.controllers.node import events as node_events
from pileus.controllers.route import status as route_status
from pileus.controllers.service.events import Reason
from pileus.controllers.ssh_keys import events as ssh_keys
from pileus.deployment.flags import OWN, chosen
from pileus.deployment.manifests import objects
from pileus.runtime.informers import DEAD, SILENT
from pileus.settings.flags import Table
from pileus.settings.sources import gather

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ROW = re.compile(r"^\| (.+?) \|", re.MULTILINE)


def first_cells(page: Path) -> list[str]:
    return ROW.findall(page.read_text())


def strings_in(module: Path) -> set[str]:
    nodes = ast.walk(ast.parse(module.read_text()))
    return {
        each.value
        for each in nodes
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }


def test_every_runtime_dependency_has_its_reason():
    page = DOCS / "adr" / "0002-runtime-dependencies.md"
    extras = PROJECT["optional-dependencies"]
    declared = (*PROJECT["dependencies"], *extras["otlp"], *extras["csi"])
    wanted = {re.split(r"[<>=;\[ ]", one)[0] for one in declared}

    assert set(first_cells(page)) - {"package", "---"} == wanted


def test_every_decision_is_in_the_index_under_its_own_title():
    pages = sorted((DOCS / "adr").glob("0*.md"))
    titles = [page.read_text().partition("\n")[0].removeprefix("# ") for page in pages]

    index = re.findall(
        r"^\| \[(\d+)\]\((\S+)\) \| (.+) \|$",
        (DOCS / "adr" / "README.md").read_text(),
        re.MULTILINE,
    )

    assert [(name, f"{number}. {title}") for number, name, title in index] == [
        (page.name, title) for page, title in zip(pages, titles, strict=True)
    ]


def test_every_reason_of_an_event_is_explained():
    told = {name for _, name in node_events._REASONS}
    skipped = {
        one
        for one in strings_in(Path(node_events.__file__))
        if re.fullmatch(r"Cloud\w+Skipped", one)
    }
    assert skipped

    for page in ("events.md", "nodes.md"):
        explained = set(re.findall(r"`(\w+)`", (DOCS / "reference" / page).read_text()))
        assert told | skipped <= explained, page


def test_every_reason_of_the_lifecycle_controller_is_explained():
    announced = {
        one
        for one in strings_in(Path(lifecycle_reconciler.__file__))
        if re.fullmatch(r"(?:Node|Deleting)[A-Z]\w+", one)
    }
    assert announced

    for page, told in (
        ("events.md", lifecycle_plan.REASONS | announced),
        ("node-deletion.md", lifecycle_plan.REASONS | announced - {"NodeWriteFailed"}),
    ):
        explained = set(re.findall(r"`(\w+)`", (DOCS / "reference" / page).read_text()))
        assert told <= explained, page


def test_every_event_about_ssh_keys_is_explained():
    told = {one for one in strings_in(Path(ssh_keys.__file__)) if one.startswith("SshKeys")}
    assert len(told) == 5

    for page in ("events.md", "ssh-keys.md"):
        explained = set(re.findall(r"`(\w+)`", (DOCS / "reference" / page).read_text()))
        assert told <= explained, page


@pytest.mark.parametrize(
    ("page", "reasons"),
    [
        ("routes.md", (route_status.FAILED, route_status.REFUSED)),
        ("ipam.md", (ipam_plan.FULL, ipam_plan.FAILED, ipam_plan.ODD)),
    ],
)
def test_every_reason_of_routes_and_pod_ranges_is_explained(page, reasons):
    for name in ("events.md", page):
        text = (DOCS / "reference" / name).read_text()
        assert all(f"`{reason}`" in text for reason in reasons), name


def test_every_reason_on_a_service_is_explained():
    told = {
        found
        for module in ("events", "status")
        for found in strings_in(ROOT / f"src/pileus/controllers/service/{module}.py")
        if re.fullmatch(r"([A-Z][a-z]+){1,4}", found) and found not in {"True", "False", "Unknown"}
    } - {"Proxy", "SyncFailed", "Service", "Namespace"}
    text = (DOCS / "reference" / "services.md").read_text()
    explained = set(re.findall(r"`(\w+)`", text))

    assert {"QuotaExceeded", "LoadBalancerReady", "Pending", "WaitsForFormer"} <= told
    assert told <= explained
    assert set(Reason) <= explained


def test_every_health_check_is_explained_with_its_limit():
    text = (DOCS / "reference" / "health.md").read_text()
    rows = dict(re.findall(r"^\| `([\w-]+)` \| .+? \| (.+) \|$", text, re.MULTILINE))
    added = {
        found
        for module in (ROOT / "src" / "pileus" / "app").glob("*.py")
        for found in re.findall(r'health\.add\((?:scope\.scoped\()?"([\w-]+)"', module.read_text())
    } | {ASSIGNMENT}
    assert added

    assert rows.keys() == added | {names.canonical for names in CONTROLLERS.names} | {"ping"}
    assert f"{DEAD:.0f} s" in rows["informers"]
    assert f"{SILENT:.0f} s" in rows["informers-synced"]
    for descriptor in CONTROLLERS:
        assert f"{descriptor.stuck_after:.0f} s" in rows[descriptor.names.canonical]


def test_the_readme_says_which_controllers_and_providers_there_are():
    text = (ROOT / "README.md").read_text()
    states = {
        name: "not yet" not in state
        for names, state in re.findall(r"^\| (`[^|]+controller`) \| (.+) \|$", text, re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", names)
    }
    lab = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text())["project"]
    ours = {
        name for one in (PROJECT, lab) for name in one["entry-points"].get("pileus.providers", ())
    }

    assert states == {names.canonical: True for names in CONTROLLERS.names}
    assert ours == set(re.findall(r"^\| `(\w+)`: ", text, re.MULTILINE))


def test_every_page_is_in_the_index():
    index = (DOCS / "README.md").read_text()

    for folder in ("tutorials", "guides", "reference", "explanation"):
        for page in (DOCS / folder).glob("*.md"):
            assert f"({folder}/{page.name})" in index


def test_the_commands_of_the_removal_find_every_kind_that_is_installed():
    line = (
        "--cloud-provider=openstack",
        "--csi",
        "--csi-snapshots",
        "--webhooks=*",
        "--feature-gates=CloudControllerManagerWebhook=true",
        "--use-service-account-credentials",
    )
    installed = [
        each
        for monitor in ("service", "pod")
        for each in objects(
            chosen(
                gather(
                    Table((OWN, *TABLE.groups)),
                    "pileus manifests",
                    (*line, f"--monitoring={monitor}"),
                    {},
                ).values,
                lambda path: Path(path).read_bytes(),
            )
        )
    ]
    text = (DOCS / "guides/uninstall.md").read_text()
    found = re.findall(
        r"^    kubectl delete (\S+)( --all-namespaces)? --selector=(\S+)$", text, re.MULTILINE
    )

    shown = {kind: bool(everywhere) for kinds, everywhere, _ in found for kind in kinds.split(",")}
    assert {f"{one['kind'].lower()}s".replace("sss", "sses") for one in installed} == shown.keys()
    for one in installed:
        kind = f"{one['kind'].lower()}s".replace("sss", "sses")
        assert shown[kind] is ("namespace" in one["metadata"]), kind
        for _, _, selector in found:
            name, _, value = selector.partition("=")
            assert one["metadata"]["labels"][name] == value, kind


def test_the_removal_keeps_the_namespace_which_may_have_objects_of_others():
    text = (DOCS / "guides/uninstall.md").read_text()
    deletions = [line for line in text.splitlines() if line.startswith("    kubectl delete")]

    assert deletions
    for line in deletions:
        assert "namespaces," not in line
        assert line.endswith(" --selector=app.kubernetes.io/part-of=pileus")
