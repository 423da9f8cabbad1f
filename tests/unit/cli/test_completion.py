"""Completion in real shells, manual pages, and the kubectl plugin."""

import io
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from tools import krew_plugin

from pileus.app.settings import TABLE
from pileus.cli.completion import candidates, script
from pileus.cli.declared import declared
from pileus.cli.main import COMMANDS, dispatch
from pileus.cli.man import page
from pileus.cli.object_names import RESOURCES
from pileus.cli.terminal import Terminal

BIN = Path(sys.executable).parent
SHELLS = {name: shutil.which(name) for name in ("bash", "zsh", "fish", "man")}


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not SHELLS[name], reason=f"{name} is not installed")


def bash(line: str, folder: Path) -> list[str]:
    """What bash offers for a line that ends at the cursor."""
    (folder / "pileus.bash").write_text(script("bash", declared()))
    code = (
        f"source {folder}/pileus.bash; COMP_LINE=$1; COMP_POINT=${{#1}}; _pileus; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", code, "bash", line], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@needs("bash")
def test_bash_completes_commands_flags_and_values(tmp_path: Path) -> None:
    assert set(COMMANDS) <= set(bash("pileus ", tmp_path))
    assert bash("pileus hist", tmp_path) == ["history"]
    assert bash("pileus history n", tmp_path) == ["node"]
    assert bash("pileus history --tok", tmp_path) == ["--token-file="]
    assert bash("kubectl-pileus history --output=w", tmp_path) == ["wide"]
    assert bash("pileus doctor --output=", tmp_path) == ["text", "json", "yaml"]
    assert bash("pileus completion f", tmp_path) == ["fish"]
    assert bash("pileus doctor -o y", tmp_path) == ["yaml"]
    assert {"local", "openstack"} <= set(bash("pileus plan --cloud-provider=", tmp_path))


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubectl that lists objects of the kinds that it knows."""
    program = tmp_path / "kubectl"
    program.write_text(
        "#!/bin/sh\n"
        'case "$2 $3" in\n'
        '  nodes\\ --output=*) echo "web-1 web-2 ";;\n'
        '  "services --all-namespaces") echo "default/shop ";;\n'
        '  "persistentvolumeclaims --all-namespaces") echo "default/data ";;\n'
        "esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@needs("bash")
@pytest.mark.usefixtures("kubectl")
def test_bash_completes_names_of_objects_as_kubectl_lists_them(tmp_path: Path) -> None:
    assert bash("pileus explain node ", tmp_path) == ["web-1", "web-2"]
    assert bash("pileus history service def", tmp_path) == ["default/shop"]
    assert bash("pileus plan pvc ", tmp_path) == ["default/data"]
    assert bash("pileus explain svc ", tmp_path) == ["default/shop"]
    assert bash("pileus history nodes web-2", tmp_path) == ["web-2"]


def zsh(line: str, expected: str, folder: Path) -> str:
    """What zsh prints after the Tab key on this line, at least until the expected text."""
    (folder / "_pileus").write_text(script("zsh", declared()))
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "vt100", "HOME": str(folder)},
    )
    os.close(theirs)

    def answer(text: str, until: str) -> str:
        os.write(ours, text.encode())
        shown, end = "", time.monotonic() + 20
        while until not in shown and time.monotonic() < end:
            if select.select([ours], [], [], 0.1)[0]:
                shown += os.read(ours, 4096).decode(errors="replace")
        return shown

    try:
        ready = f"autoload -Uz compinit; compinit -u -D; source {folder}/_pileus; PS1=REA''DY"
        answer(f"{ready}\n", "READY")
        time.sleep(0.3)  # until its line editor reads keys
        return answer(f"{line}\t", expected)
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)


@needs("zsh")
@pytest.mark.usefixtures("kubectl")
@pytest.mark.parametrize(
    ("line", "added"),
    [
        ("pileus explain service def", "ault/shop"),
        ("pileus explain --namespace=x pvc d", "efault/data"),
        ("pileus plan node w", "eb-"),
        ("pileus explain svc d", "efault/shop"),
    ],
)
def test_zsh_completes_names_of_objects(line: str, added: str, tmp_path: Path) -> None:
    assert added in zsh(line, added, tmp_path)


@needs("fish")
@pytest.mark.usefixtures("kubectl")
def test_fish_completes_names_of_objects(tmp_path: Path) -> None:
    (tmp_path / "pileus.fish").write_text(script("fish", declared()))

    def fish(line: str) -> list[str]:
        code = f"source {tmp_path}/pileus.fish; complete -C '{line}'"
        done = subprocess.run(["fish", "-c", code], capture_output=True, text=True, check=True)
        return [each.split("\t")[0] for each in done.stdout.splitlines()]

    assert fish("pileus explain node ") == ["web-1", "web-2"]
    assert fish("pileus history service def") == ["default/shop"]
    assert fish("kubectl-pileus plan pvc ") == ["default/data"]
    assert fish("pileus explain svc ") == ["default/shop"]
    assert "node" in fish("pileus explain ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_asks_kubectl_for_the_names_of_every_kind(shell: str) -> None:
    text = script(shell, declared())

    for each in RESOURCES.values():
        scope = " --all-namespaces" if each.namespaced else ""
        assert f"kubectl get {each.plural}{scope} --output=jsonpath=" in text


@needs("bash")
def test_bash_offers_every_flag_of_the_manager(tmp_path: Path) -> None:
    offered = {word.strip("-=") for word in bash("pileus run --", tmp_path)}
    usable = {flag.name for flag in TABLE if not flag.deprecated and not flag.only_file}
    assert usable <= offered


@needs("fish")
def test_fish_completes_commands_flags_and_values(tmp_path: Path) -> None:
    (tmp_path / "pileus.fish").write_text(script("fish", declared()))

    def fish(line: str) -> list[str]:
        code = f"source {tmp_path}/pileus.fish; complete -C '{line}'"
        done = subprocess.run(["fish", "-c", code], capture_output=True, text=True, check=True)
        return [each.split("\t")[0] for each in done.stdout.splitlines()]

    assert fish("pileus hist") == ["history"]
    assert fish("pileus history --tok") == ["--token-file"]
    assert "--output=wide" in fish("pileus history --output=")


@needs("zsh")
def test_zsh_reads_the_script(tmp_path: Path) -> None:
    (tmp_path / "_pileus").write_text(script("zsh", declared()))
    subprocess.run(["zsh", "-n", str(tmp_path / "_pileus")], check=True)


def test_kubectl_gets_the_same_candidates() -> None:
    commands = declared()
    assert candidates(["hist"], commands) == ["history"]
    assert candidates(["history", "--output=w"], commands) == ["--output=wide"]
    assert candidates(["history", "s"], commands) == ["service"]
    assert candidates(["history", "-o", "w"], commands) == ["wide"]
    assert "--cloud-provider=openstack" in candidates(["plan", "--cloud-provider="], commands)
    assert candidates(["nonsense", ""], commands) == ()


@pytest.mark.usefixtures("kubectl")
def test_kubectl_gets_names_of_objects() -> None:
    """kubectl runs this program, and shows the lines that it prints."""

    def asked(*words: str) -> list[str]:
        done = subprocess.run(
            [str(BIN / "kubectl_complete-pileus"), *words],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    assert asked("explain", "node", "") == ["web-1", "web-2", ":4"]
    assert asked("history", "service", "def") == ["default/shop", ":4"]
    assert asked("plan", "--namespace=x", "pvc", "") == ["default/data", ":4"]
    assert asked("explain", "svc", "") == ["default/shop", ":4"]
    assert asked("explain", "pv", "") == [":4"]
    assert "node" in asked("explain", "")
    assert "--output=" in asked("explain", "node", "--out")


def test_zsh_and_fish_know_the_short_flag_of_the_output() -> None:
    zsh_text, fish_text = script("zsh", declared()), script("fish", declared())

    assert re.search(r"'-o\+\[Output format[^']*\]:string:\(text wide json yaml\)'", zsh_text)
    assert re.search(r"__fish_seen_subcommand_from history' -l output -s o -x -a ", fish_text)


@needs("man")
@pytest.mark.parametrize("name", ["pileus", *COMMANDS])
def test_every_manual_page_is_read_without_a_warning(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.1"
    file.write_text(page(name))
    done = subprocess.run(
        ["man", "--warnings", "--local-file", str(file)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
    )
    assert done.stderr == ""
    assert "NAME" in done.stdout


def test_a_manual_page_has_the_flags_of_its_command() -> None:
    assert "\\-\\-token\\-file=string" in page("history")
    assert "\\-\\-cluster\\-cidr=string" in page("run")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("completion", "bsh"), "did you mean bash?"),
        (("completion",), "missing SHELL"),
        (("man", "histroy"), "did you mean history?"),
    ],
)
def test_a_wrong_word_is_answered_with_the_one_meant(arguments: tuple[str, ...], text: str) -> None:
    terminal = Terminal(io.StringIO(), io.StringIO(), {})
    assert dispatch(arguments, terminal) == 1
    assert text in terminal.err.getvalue()  # type: ignore[attr-defined]


def test_the_plugin_of_kubectl_names_itself_in_help_and_errors() -> None:
    told = subprocess.run(
        [str(BIN / "kubectl-pileus"), "histroy"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 1
    assert "did you mean kubectl pileus history?" in told.stderr


def test_the_krew_manifest_names_the_archive_that_is_built() -> None:
    content = krew_plugin.archive()
    assert krew_plugin.archive() == content
    assert krew_plugin.MANIFEST.read_text() == krew_plugin.manifest(content)
    spec = yaml.safe_load(krew_plugin.MANIFEST.read_text())["spec"]
    assert {one["bin"] for one in spec["platforms"]} == {"kubectl-pileus"}


def test_the_krew_plugin_without_pileus_says_what_to_install(tmp_path: Path) -> None:
    told = subprocess.run(
        ["/bin/sh", str(krew_plugin.FILES["kubectl-pileus"])],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert (told.returncode, "Fix: pip install ." in told.stderr) == (1, True)
