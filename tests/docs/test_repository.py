"""What surrounds the code agrees with it: changes, workflows, hooks, templates, updates."""

import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from pileus.app.registry import CONTROLLERS
from pileus.app.settings import TABLE
from pileus.cli.csi import OWN as CSI
from pileus.cli.main import COMMANDS, LAB_COMMANDS
from pileus.csi.metrics import CsiMetrics
from pileus.deployment.dashboard import known
from pileus.deployment.flags import OWN as MANIFESTS
from pileus.telemetry.instruments import MetricRegistry, declarations
from pileus.version import ON_INDEX, PILEUS, installing

ROOT = Path(__file__).resolve().parents[2]
CHANGES = (ROOT / "CHANGELOG.md").read_text()
CODE = " ".join(re.findall(r"`([^`]+)`", CHANGES))
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yaml"))
EACH = [pytest.param(path, id=path.name) for path in WORKFLOWS]
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
ACTIONLINT = os.environ.get("PILEUS_ACTIONLINT")
COMMAND_FLAGS = {
    *("cloud", "context", "help", "scenario", "version"),
    *(flag.name for flag in MANIFESTS.flags),
    *(flag.name for flag in CSI.flags),
}
"""Flags of commands, which are not the manager's."""


def test_the_first_task_of_a_contributor_runs_the_tests_that_ask_for_generated_files():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    edited = ROOT / next(iter(re.findall(r"\$EDITOR (\S+)", text)))
    folders = next(iter(re.findall(r"-m pytest -q (.+?) +#", text))).split()
    run = [
        file.read_text()
        for folder in folders
        for file in ((ROOT / folder).rglob("test_*.py") if "." not in folder else [ROOT / folder])
    ]

    assert edited.name == "settings.py", "its texts are on the page of the flags"
    assert edited.exists()
    for shown in ("flags_reference.page()", "deploy_files"):
        assert any(shown in each for each in run), shown


def test_commands_take_as_long_on_every_page():
    pages = [(ROOT / name).read_text() for name in ("Makefile", "README.md", "CONTRIBUTING.md")]
    found = {
        what: {match for page in pages for match in re.findall(pattern, page)}
        for what, pattern in (
            ("make check", r"(?:static checks \(|types; )([\w ]+?)(?:\)|\n)"),
            (
                "the oldest control plane",
                r"(?s)oldest API server[^#]{,180}?built once, about (\w+) min",
            ),
        )
    }

    assert found == {"make check": {"one to two minutes"}, "the oldest control plane": {"15"}}


def test_the_changes_begin_with_this_version():
    assert re.findall(r"^## (\S+)", CHANGES, re.MULTILINE)[0] == PILEUS


def test_pages_and_programs_install_what_is_not_released_from_the_clone():
    """Records of decisions are not rewritten."""
    released = re.findall(r"^## \S+ \(\d{4}-", CHANGES, re.MULTILINE)
    assert bool(released) == ON_INDEX, "set ON_INDEX with the first release"
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*")]
    programs = [one for part in ("src", "lab", "tools") for one in (ROOT / part).rglob("*")]
    kept = {ROOT / "RELEASING.md", ROOT / "src/pileus/version.py"}
    shown = [
        f"{page.relative_to(ROOT)}: {line.strip()}"
        for page in (*pages, *programs)
        if page.is_file() and page.suffix not in {".pyc", ".whl"} and page not in kept
        if page.parent.name != "adr"
        for line in page.read_text(errors="replace").splitlines()
        if re.search(r"pipx? install (?:-\S+ )*'?pileus(?!-provider-example)", line)
        or "docs.pileus.dev" in line
    ]

    assert shown == []


@pytest.mark.parametrize(
    ("extra", "again", "command"),
    [
        ("lab", False, "pip install . ./lab (in a clone of the repository)"),
        ("lab", True, "pip install --force-reinstall . ./lab (in a clone of the repository)"),
        ("csi", False, "pip install '.[csi]' (in a clone of the repository)"),
    ],
)
def test_an_extra_is_installed_from_the_clone(extra: str, again: bool, command: str):
    assert installing(extra, again=again) == command


FIRST_SCREEN = (ROOT / "README.md").read_text()[:1800]


def test_the_tests_on_the_oldest_api_server_get_what_the_others_get():
    """A variable that is missing would leave its tests out."""
    named = re.compile(r'"(PILEUS_[A-Z_]+)"')
    read = {
        name
        for file in (ROOT / "tests/real").rglob("*.py")
        for name in named.findall(file.read_text())
    }
    given = set(re.findall(r"export (PILEUS_\w+)=", (ROOT / "tools/run-tests").read_text()))
    skew = (ROOT / "Makefile").read_text().partition("\ntest-skew:")[2].partition("\n\n")[0]

    assert {"PILEUS_CONTROL_PLANE", "PILEUS_HELM", "PILEUS_GO_OPENSTACK_CHART"} <= read & given
    assert sorted(read & given - set(re.findall(r"(PILEUS_\w+)=", skew))) == []


def test_the_first_screen_of_the_readme_names_the_clouds_that_work():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    clouds = FIRST_SCREEN.partition("**Clouds:")[2].partition("\n\n")[0]

    for name in (*project["entry-points"]["pileus.providers"], "local"):
        assert name in clouds.lower(), name
    assert "no provider for AWS" in " ".join(clouds.split())


def test_drop_in_is_said_of_the_clouds_that_work_only():
    """Of every sentence on the first screen, and of what the index and the image show."""
    texts = [
        FIRST_SCREEN,
        *(path.read_text() for path in (ROOT / "pyproject.toml", ROOT / "lab/pyproject.toml")),
        (ROOT / "deploy/chart/pileus/Chart.yaml").read_text(),
        (ROOT / "Containerfile").read_text(),
    ]
    sentences = [one for text in texts for one in re.split(r"(?<=[.:])\s*\n|\. ", text)]
    said = [one for one in sentences if re.search(r"drop[- ]in", one, re.IGNORECASE)]

    assert len(said) == 2
    assert [one for one in said if "on OpenStack" not in " ".join(one.split())] == []


def test_the_changes_are_ten_lines_a_version():
    for version in re.split(r"^## ", CHANGES, flags=re.MULTILINE)[1:]:
        heading, *lines = filter(None, version.split("\n"))
        assert len(lines) <= 10, heading


def test_the_changes_name_all_controllers_providers_and_commands():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    providers = set(project["entry-points"]["pileus.providers"])

    assert {names.canonical for names in CONTROLLERS.names} | providers <= set(
        re.findall(r"`([\w-]+)`", CHANGES)
    )
    named = {word for code in re.findall(r"`([^`]+)`", CHANGES) for word in code.split()}
    assert {*COMMANDS, *LAB_COMMANDS} <= named


def test_the_changes_name_only_commands_flags_and_metrics_that_exist():
    commands = set(re.findall(r"(?<!install )\bpileus ([a-z]+)", CODE))
    flags = set(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", CODE))
    metrics = set(re.findall(r"\bpileus_\w+", CODE)) - {"pileus_lab"}

    assert commands - {"help"} <= {*COMMANDS, *LAB_COMMANDS}
    assert flags - COMMAND_FLAGS <= {flag.name for flag in TABLE}
    of_csi = {one.name for one in declarations(CsiMetrics(MetricRegistry(), "")).values()}
    assert metrics <= known().keys() | of_csi
    assert set(re.findall(r"\bmake ([a-z0-9-]+)", CODE)) <= TARGETS


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("workflow", EACH)
def test_an_action_is_pinned_by_its_commit_with_its_version_beside_it(workflow: Path):
    lines = re.findall(r"^.*uses: .*$", workflow.read_text(), re.MULTILINE)

    assert lines
    for line in lines:
        assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


@pytest.mark.parametrize("workflow", EACH)
def test_a_workflow_may_read_the_code_and_jobs_get_more_only_where_named(workflow: Path):
    document = yaml.safe_load(workflow.read_text())

    assert document["permissions"] == {"contents": "read"}
    on: dict[str, Any] = document[True]  # YAML 1.1 reads the word `on` as a boolean
    assert "pull_request_target" not in on
    writing = [name for name, job in document["jobs"].items() if "permissions" in job]
    assert not writing or set(on) == {"push"}
    for step in steps(workflow):
        if "actions/checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("workflow", EACH)
def test_a_workflow_runs_targets_that_exist_and_no_text_of_strangers(workflow: Path):
    for step in steps(workflow):
        run = step.get("run", "")
        for line in re.findall(r"^make (.+)$", run, re.MULTILINE):
            targets = [word for word in shlex.split(line) if "=" not in word]
            assert set(targets) <= TARGETS
        assert "${{" not in run, "text of an event can be code: use an environment variable"


def test_the_tests_run_on_every_python_that_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lab = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text())["project"]
    matrix = yaml.safe_load((GITHUB / "workflows" / "test.yaml").read_text())
    versions = matrix["jobs"]["test"]["strategy"]["matrix"]["python"]

    for declared in (project, lab):
        named = re.findall(r"Python :: (3\.\d+)", " ".join(declared["classifiers"]))
        assert named == versions
        assert declared["requires-python"] == f">={versions[0]}"


@pytest.mark.real_time
@pytest.mark.skipif(not ACTIONLINT, reason="no actionlint: PILEUS_ACTIONLINT is not set")
def test_actionlint_accepts_the_workflows():
    command = [str(ACTIONLINT), "-shellcheck=", "-pyflakes=", *map(str, WORKFLOWS)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (0, "")


def test_the_hooks_run_the_checks_of_the_project():
    script = (ROOT / "tools" / "run-checks").read_text()
    checks = dict(re.findall(r"^step (\w+) \$bin/(.+)$", script, re.MULTILINE))
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = {hook["id"]: hook["entry"].removeprefix(".venv/bin/") for hook in local["hooks"]}

    assert hooks.pop("check") == "make check"
    assert hooks.keys() == checks.keys() - {"types"}
    for name, entry in hooks.items():
        assert entry.removesuffix(" --force-exclude") == checks[name].removesuffix(" .")


def test_updates_are_proposed_for_everything_that_is_pinned():
    found = json.loads((ROOT / "renovate.json").read_text())

    named = {name for rule in found["packageRules"] for name in rule.get("matchFileNames", ())}
    assert all((ROOT / name.removesuffix("/**")).is_dir() for name in named)
    assert {each for rule in found["packageRules"] for each in rule["matchManagers"]} == {
        "pip_requirements",
        "pep621",
        "gomod",
        "github-actions",
    }


@pytest.mark.parametrize("name", ["bug.yaml", "feature.yaml"])
def test_a_form_for_issues_is_complete(name: str):
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / name).read_text())

    assert form.keys() >= {"name", "description", "body"}
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    assert all(part["attributes"]["label"] and part["id"] for part in fields)
    assert len({part["id"] for part in fields}) == len(fields)
    text = str(form)
    assert set(re.findall(r"`pileus ([a-z]+)", text)) <= {*COMMANDS, *LAB_COMMANDS}


def test_the_page_for_releases_names_targets_and_steps_that_exist():
    text = (ROOT / "RELEASING.md").read_text()

    for line in re.findall(r"\bmake ([a-z0-9 -]+)", text):
        assert line.split()[0] in TARGETS
    assert set(re.findall(r"tools\.release (\w+)", text)) == {"bump"}
    flags = re.findall(r"(?<![\w-])--([a-z][a-z-]+)", (ROOT / "SECURITY.md").read_text())
    assert set(flags) - {"repo"} <= {flag.name for flag in TABLE}
