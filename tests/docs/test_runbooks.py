"""Every alert has a page that says what to do, and the pages name only what exists."""

import re
from pathlib import Path

import pytest
import yaml

from pileus.app.settings import TABLE
from pileus.cli.main import COMMANDS
from pileus.cli.orphans import DELETE, YES
from pileus.deployment.alerts import ALERTS
from pileus.deployment.dashboard import known
from pileus.deployment.flags import OWN

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "runbooks"
ALERT_NAMES = {alert.name for group in ALERTS.values() for alert in group}
PAGES = [pytest.param(page, id=page.stem) for page in sorted(FOLDER.glob("Pileus*.md"))]
OUTSIDE = {"apiserver_flowcontrol_rejected_requests_total"}
"""Metrics of other components."""
KUBECTL = {
    *("all-namespaces", "selector", "output", "prefix", "tail", "since", "types", "previous"),
    *("raw", "field-selector", "namespace"),
}
OTHERS = {"lines", "ignore-case", "extended-regexp", "raw-output", "node-ip"}
"""Flags of tail, grep, jq and the kubelet."""


def test_every_alert_has_a_page_and_every_page_an_alert():
    assert {page.stem for page in FOLDER.glob("Pileus*.md")} == ALERT_NAMES


@pytest.mark.parametrize(
    "file", ["monitoring/alerts.yaml", "chart/pileus/files/alerts.yaml"], ids=["rules", "chart"]
)
def test_the_link_of_every_alert_leads_to_its_page_in_the_repository(file: str):
    """No site publishes the pages yet; --runbook-url replaces the start of the links."""
    groups = yaml.safe_load((ROOT / "deploy" / file).read_text())["groups"]
    links = {
        rule["alert"]: rule["annotations"]["runbook_url"]
        for group in groups
        for rule in group["rules"]
    }

    assert links.keys() == ALERT_NAMES
    assert [name for name, link in links.items() if not (ROOT / link).is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_what_the_alert_means_how_to_see_it_and_what_to_do(page: Path):
    text = page.read_text()

    headings = re.findall(r"^#+ .+$", text, re.MULTILINE)
    assert headings == [f"# {page.stem}", "## Diagnose", "## Fix"]
    parts = re.split(r"^## .+$", text, flags=re.MULTILINE)
    assert all(len(part.split()) > 10 for part in parts)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_metrics_flags_and_commands_that_exist(page: Path):
    text = page.read_text()
    metrics = re.findall(
        r"\b(?:pileus|workqueue|rest_client|node_ipam|process|apiserver)_\w+", text
    )
    flags = set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", text))
    commands = re.findall(r"\bpileus (plan|explain|orphans|[a-z]+)\b", text)

    assert {re.sub(r"_(bucket|sum|count)$", "", each) for each in metrics} <= (
        known().keys() | OUTSIDE
    )
    ours = {flag.name for flag in (*TABLE, *OWN.flags, DELETE, YES)}
    assert flags - KUBECTL - OTHERS <= ours
    assert set(commands) <= set(COMMANDS)
