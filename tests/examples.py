"""The example providers, installed as users would: from distributions of their own."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
PROVIDERS = {"inventory": "provider-modern", "shelf": "provider-classic"}


def install_examples(target: Path) -> Path:
    """Install both into a folder, without an index, and return the folder."""
    sources = [str(EXAMPLES / folder) for folder in PROVIDERS.values()]
    offline = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--no-index"]
    subprocess.run([*command, "--target", str(target), *sources], check=True, timeout=240)
    return target
