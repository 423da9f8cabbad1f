"""The pages about OpenStack: generated where possible, and examples that the product accepts.

Blocks of the kind ```ini are whole cloud.conf files, or sections of one. Tables of guides whose
first column is `message` quote texts of the code.
"""

import ast
import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from tools import openstack_reference

from pileus.providers.openstack import annotations, config_checks, volume_records
from pileus.providers.openstack.cloud_conf import read_cloud_conf
from pileus.providers.openstack.config import CLASS_SECTION, SECTIONS, LoadBalancerClass, keys_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*/*openstack*.md"))
GUIDES = [page for page in PAGES if page.parent.name == "guides"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
KEY = re.compile(r"`([a-z-]+)`(?:, `([a-z-]+)`)* (?:of|in) `\[(\w+)\]`")
MESSAGE = re.compile(r"^\| `([^`]+)` \| [^|]+ \|$", re.MULTILINE)
"""The first cell of a row with two cells: a message, with `…` for what differs, or a reason."""
TABLE = re.compile(r"^\| message \|.*\n((?:\|.*\n)+)", re.MULTILINE)
REASON = re.compile(r"LoadBalancer[A-Z][A-Za-z]+(?<!Class)")
SOURCES = ("providers/openstack", "controllers", "cloud", "app", "objects", "settings")


def blocks(kind: str) -> list[object]:
    return [
        pytest.param(text, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, (found, text) in enumerate(BLOCK.findall(page.read_text()))
        if found == kind
    ]


def test_the_page_in_the_repository_is_what_the_declarations_say():
    shown = openstack_reference.PAGE.read_text(encoding="utf-8")

    assert shown == openstack_reference.page(), "run `make docs`"
    assert "<!-- CONFIG" not in shown


@pytest.mark.parametrize("text", blocks("ini"))
def test_every_cloud_conf_in_a_page_is_accepted_without_a_warning(text: str):
    conf = read_cloud_conf(text, "cloud.conf")

    assert conf.warnings == ()
    if conf.config.auth.auth_url:
        assert list(config_checks.problems(conf.config)) == []
        assert list(config_checks.warnings(conf.config)) == []


@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem) for page in PAGES])
def test_every_key_that_a_page_names_with_its_section_exists(page: Path):
    known = {name: {key.name for key in keys_of(kind)} for name, kind in SECTIONS.items()}
    known[CLASS_SECTION] = {key.name for key in keys_of(LoadBalancerClass)}

    for match in KEY.finditer(page.read_text()):
        *keys, section = (each for each in match.groups() if each)
        assert set(keys) <= known[section], match[0]


@pytest.mark.parametrize("text", blocks("yaml"))
def test_every_manifest_in_a_page_is_accepted(text: str):
    manifest = yaml.safe_load(text)
    if manifest.get("kind") == "Service":
        given = manifest["metadata"]["annotations"]
        annotations.read(annotations.ANNOTATIONS.settings(given))
        assert annotations.ANNOTATIONS.problems(given) == ()
        assert annotations.ignored(given) == ()


@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem) for page in PAGES])
def test_every_annotation_that_a_page_names_is_declared(page: Path):
    named = set(re.findall(r"loadbalancer\.openstack\.org/[a-z-]*[a-z]", page.read_text()))

    assert named <= {option.name for option in annotations.OPTIONS}


def test_every_tag_and_annotation_of_ours_is_explained():
    package = ROOT / "src" / "pileus" / "providers" / "openstack"
    code = "".join(path.read_text() for path in package.glob("*.py"))
    named = set(re.findall(r"pileus\.dev/[a-z][a-z-]*[a-z]", code))
    explained = openstack_reference.PAGE.read_text()

    assert "pileus.dev/cluster" in named
    assert [one for one in sorted(named) if one not in explained] == []


def test_every_reason_of_an_event_of_the_provider_is_explained():
    reasons = {text for text in texts("providers/openstack") if REASON.fullmatch(text)}
    explained = openstack_reference.PAGE.read_text()

    assert "LoadBalancerForcedInternal" in reasons
    assert [one for one in sorted(reasons) if f"`{one}`" not in explained] == []


def shown_in(node: ast.AST) -> str:
    """Returns a text of the code with `…` for what is only known when the program runs."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "…"
    if isinstance(node, ast.JoinedStr):
        return "".join(shown_in(part) for part in node.values)
    return "…"


@cache
def texts(*sources: str) -> tuple[str, ...]:
    """Returns the texts in the code of these packages."""
    found: set[str] = set()
    for source in sources:
        for path in (ROOT / "src" / "pileus" / source).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text()))
            found.update(
                shown_in(node) for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr)
            )
    return tuple(found)


def messages() -> Iterator[object]:
    for page in GUIDES:
        for table in TABLE.findall(page.read_text()):
            for text in MESSAGE.findall(table):
                yield pytest.param(text, id=text[:40])


@pytest.mark.parametrize("message", list(messages()))
def test_every_message_that_a_guide_quotes_is_one_of_the_code(message: str):
    parts = [part.strip() for part in message.split("…") if part.strip()]
    in_order = re.compile(".*".join(re.escape(part) for part in parts), re.DOTALL)

    assert any(in_order.search(text) for text in texts(*SOURCES)), message


GO = os.environ.get("PILEUS_GO_OPENSTACK_CHART", "")
OLD = re.compile(r"^\| value of the Go manager's chart \|.*\n\|-.*\n((?:\|.*\n)+)", re.MULTILINE)
ABSENT = {"cloudConfigContents", "hostAliases"}
"""Values of the Go manager's chart that its values.yaml does not list."""


@pytest.mark.skipif(not GO, reason="no chart: PILEUS_GO_OPENSTACK_CHART is not set")
def test_the_guide_maps_every_value_of_the_go_manager_s_chart_to_one_that_exists():
    """A row without `none` names values, or flags of the manager, of the chart of Pileus."""
    (table,) = OLD.findall(
        (ROOT / "docs/guides/take-over-from-the-go-openstack-ccm.md").read_text()
    )
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()]
    folder = Path(GO) / "charts/openstack-cloud-controller-manager"
    theirs = yaml.safe_load((folder / "values.yaml").read_text())
    ours = json.loads((ROOT / "deploy/chart/pileus/values.schema.json").read_text())["properties"]

    old = {name for cell, _ in rows for name in re.findall(r"`([A-Za-z]+)[:.`]", cell)}
    same = {
        name
        for cell, new in rows
        if new.startswith("the same")
        for name in re.findall(r"`([A-Za-z]+)[:.`]", cell)
    }
    flags = {flag for _, new in rows for flag in re.findall(r"flags: {([a-z-]+):", new)}

    assert old == theirs.keys() | ABSENT
    assert same <= ours.keys()
    assert flags >= {"cluster-name", "controllers", "v", "bind-address"}
    assert flags <= ours["flags"]["properties"].keys()


def test_what_the_plan_of_a_take_over_adds_is_named_where_plans_are_explained() -> None:
    """The plan in the guide is the output of the command, on OpenStack services."""
    folder = ROOT / "docs" / "guides"
    example = (folder / "take-over-from-the-go-openstack-ccm.md").read_text()
    shown = example[example.index("$ pileus plan") : example.index("\ncode 2")]
    explained = " ".join((folder / "see-before-you-change.md").read_text().split())
    tagged = re.findall(r"~ cloud +tags of (load balancer|listener|pool|floating IP)", shown)
    added = re.findall(r"(?:condition|annotation) (pileus\.dev/\w+)", shown)

    assert set(tagged) == {"load balancer", "listener", "pool", "floating IP"}
    assert [each for each in tagged if each not in explained] == []
    assert sorted(added) == ["pileus.dev/Ready", "pileus.dev/Served", "pileus.dev/written"]
    assert [each for each in added if f"`{each}`" not in explained] == []
    assert len(re.findall(r"^  [~+-] ", shown, re.MULTILINE)) == len(tagged) + 1, "other lines"


def test_the_page_names_all_metadata_that_marks_volumes_and_snapshots():
    rows = [
        row for row in openstack_reference.page().splitlines() if row.startswith("| metadata `")
    ]
    named = {name for row in rows for name in re.findall(r"`([a-z./-]+/[a-z-]+)`", row)}
    labels = {"kubernetes.io/created-for/pvc/name"}

    marks = {volume_records.CLUSTER, volume_records.VOLUME, volume_records.SNAPSHOT}
    assert named == marks | {volume_records.CSI_CLUSTER} | labels
    assert named - labels == volume_records.OWN - volume_records.OF_CINDER
