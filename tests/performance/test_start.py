"""What the manager imports when it starts: modules that a run does not need cost memory and time.

Counts, no time. A module that is needed only with a flag is imported where the flag is used.
"""

import ast
import inspect
import subprocess
import sys
from functools import cache

import pytest

from pileus.app.registry import CONTROLLERS, AnyDescriptor

START = "import pileus.cli.main, pileus.cli.run, pileus.app.run"
FORBIDDEN = {
    "cryptography": "11 MB; certificates are created by another process (pileus.pki)",
    "aiohttp": "16 MB; pileus.http has a client and a server",
    "prometheus_client": "4 MB; pileus.telemetry.instruments",
    "importlib.metadata": "2 MB; pileus.entry_points",
    "email": "1 MB",
    "http.server": "1 MB",
    "difflib": "only for misspelled words",
    "yaml": "only for a file in YAML",
    "rich": "only for commands with tables",
    "opentelemetry": "only with --otlp-endpoint",
    "grpclib": "only for pileus csi",
    "pileus.csi": "only for pileus csi",
    "pileus.pki": "imports cryptography",
    "pileus.doctor": "only for pileus doctor",
    "pileus.deployment": "only for pileus manifests",
    "pileus.providers": "a provider is imported when it is chosen",
    "pileus.classic": "only by ported providers",
    "pileus.testing": "not part of the manager",
    "pileus_lab": "not part of the manager",
    "pileus.server.certificate_verification": "only for clients with certificates",
}
MOST_MODULES = 430
"""Of all packages; 412 on Python 3.11."""
MOST_OWN = 210
"""Modules of Pileus; 204 when this was written."""


@cache
def imported() -> tuple[str, ...]:
    code = f"{START}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return tuple(done.stdout.split())


@pytest.mark.real_time
@pytest.mark.parametrize("package", FORBIDDEN)
def test_a_start_does_not_import(package: str) -> None:
    found = [each for each in imported() if f"{each}.".startswith(f"{package}.")]

    assert found == [], FORBIDDEN[package]


@pytest.mark.real_time
def test_a_start_imports_few_modules() -> None:
    own = [each for each in imported() if each.split(".")[0] == "pileus"]

    assert len(imported()) <= MOST_MODULES
    assert len(own) <= MOST_OWN, "import what only some runs need where it is used"


@pytest.mark.parametrize("descriptor", tuple(CONTROLLERS), ids=lambda each: each.names.canonical)
def test_a_controller_that_does_not_run_is_not_imported(descriptor: AnyDescriptor) -> None:
    """Each reason not to run a controller is checked before its modules are imported."""
    build = ast.parse(inspect.getsource(descriptor.build)).body[0]
    assert isinstance(build, ast.FunctionDef)
    within = [node for statement in build.body for node in ast.walk(statement)]
    imports = [node.lineno for node in within if isinstance(node, ast.ImportFrom)]
    skips = [node.lineno for node in within if isinstance(node, ast.Name) and node.id == "Skipped"]

    assert min(imports) > max(skips, default=0)
