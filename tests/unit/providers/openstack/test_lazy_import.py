"""Who does not use OpenStack does not load it."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.real_time


def loaded_after(program: str) -> list[str]:
    check = "print(*(name for name in sys.modules if name.startswith('pileus.providers')))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\n{check}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split()


def test_the_command_line_and_the_manager_do_not_load_it():
    program = "import pileus.cli.main, pileus.app.manager, pileus.app.run, pileus.cli.run"
    assert loaded_after(program) == []


def test_another_provider_does_not_load_it():
    program = "from pileus.cloud.registry import Registry\nassert Registry().get('local')"
    assert loaded_after(program) == []


def test_the_provider_itself_is_found_by_its_name():
    program = "from pileus.cloud.registry import Registry\nassert Registry().get('openstack')"
    assert "pileus.providers.openstack.connect" in loaded_after(program)
