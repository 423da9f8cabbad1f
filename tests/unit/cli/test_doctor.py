"""`pileus doctor`: what it prints, and with which code it ends."""

import io
import json

import pytest
import yaml

from pileus.cli.doctor import document, exit_code, fix_lines, shown, summary
from pileus.cli.main import dispatch
from pileus.cli.terminal import Style, Terminal
from pileus.cloud.finding import Finding, Severity
from pileus.doctor.check import Check, Verdict
from pileus.doctor.doctor import Checked, Diagnosis
from pileus.doctor.observation import Unread

CHECK = Check("lease", "Lease", lambda _: Verdict(""))
FINE = Checked(CHECK, "held")
FINDING = Finding(
    id="lease-expired",
    severity=Severity.ERROR,
    subject="Lease a/b",
    what="expired",
    reason="no one renews it",
    fix="kubectl get pods   # then look for it",
)
NOTE = Finding(id="hint", severity=Severity.NOTE, subject="x", what="y", fix="edit the file")
BROKEN = Checked(CHECK, findings=(FINDING,))
UNREAD = Checked(CHECK, unread=Unread("pods", "403"))


def test_what_is_healthy_takes_one_line() -> None:
    assert shown(Diagnosis((FINE,)), "text", Style()) == (
        "✓ Lease: held\n\nHealthy: no problems found (1 of 1 checks made).\n"
    )


def test_a_finding_has_its_id_its_reason_and_its_fix() -> None:
    assert shown(Diagnosis((BROKEN, UNREAD), (NOTE,)), "text", Style()) == (
        "    note x: y [hint]\n"
        "      fix: edit the file\n"
        "\n"
        "✗ Lease\n"
        "    error Lease a/b: expired [lease-expired]\n"
        "      no one renews it\n"
        "      fix: kubectl get pods\n"
        "      # then look for it\n"
        "? Lease\n"
        "    not checked: pods cannot be read\n"
        "\n"
        "1 error, 1 note (1 of 2 checks made).\n"
    )


def test_a_command_that_is_wrapped_can_be_pasted() -> None:
    long = Finding(
        id="i", severity=Severity.WARNING, subject="s", what="w", fix="kubectl " + "word " * 20
    )

    text = shown(Diagnosis((), (long,)), "text", Style(width=60))

    command = text.partition("fix: ")[2].partition("\n\n")[0]
    assert command.replace("\\\n", " ").split() == long.fix.split()
    assert all(len(line) <= 60 for line in text.splitlines())


PATCH = """kubectl --context=a patch clusterrolebinding b --patch='[{"op": "test"}, {"op": "x"}]'"""


@pytest.mark.parametrize(
    ("fix", "lines"),
    [
        (
            f"{PATCH}   # as an administrator, who has the right to change the bindings of others",
            [
                "fix: kubectl --context=a patch clusterrolebinding b \\",
                """--patch='[{"op": "test"}, {"op": "x"}]'""",
                "# as an administrator, who has the right to change the",
                "# bindings of others",
            ],
        ),
        (
            f"kubectl get pods   # start the webhook, which other objects need, or: {PATCH}",
            [
                "fix: kubectl get pods",
                "# start the webhook, which other objects need, or:",
                f"# {PATCH}",
            ],
        ),
        (
            f"set the kubelet flag on these machines, then: {PATCH}",
            [
                "fix: set the kubelet flag on these machines, then:",
                "kubectl --context=a patch clusterrolebinding b \\",
                """--patch='[{"op": "test"}, {"op": "x"}]'""",
            ],
        ),
        ("fix what it names, then: pileus doctor", ["fix: fix what it names, then: pileus doctor"]),
        ("", []),
    ],
)
def test_each_command_of_a_fix_can_be_pasted(fix: str, lines: list[str]) -> None:
    assert [*fix_lines(fix, Style(width=60), 4)] == lines


@pytest.mark.parametrize(
    ("diagnosis", "code"),
    [
        (Diagnosis((FINE,)), 0),
        (Diagnosis((FINE,), (NOTE,)), 0),
        (Diagnosis((BROKEN,)), 2),
        (Diagnosis((FINE,), (FINDING,)), 2),
    ],
)
def test_the_exit_code(diagnosis: Diagnosis, code: int) -> None:
    assert exit_code(diagnosis) == code


def test_json_and_yaml_say_the_same() -> None:
    diagnosis = Diagnosis((BROKEN, UNREAD), (NOTE,))

    made = json.loads(shown(diagnosis, "json", Style()))

    assert made == yaml.safe_load(shown(diagnosis, "yaml", Style())) == document(diagnosis)
    assert (made["version"], made["healthy"]) == (1, False)
    assert made["summary"] == {"error": 1, "warning": 0, "note": 1}
    assert [check["made"] for check in made["checks"]] == [True, False]
    assert made["findings"][0]["id"] == "lease-expired"
    assert summary(diagnosis) == "1 error, 1 note (1 of 2 checks made)."


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-o", "yml"), 'cannot be "yml" (known: text, json, yaml)'),
        (("--manager-account=ccm",), '"ccm" is not NAMESPACE/NAME'),
        (("nodes",), 'expected no arguments, but got "nodes"'),
    ],
)
def test_bad_input_gets_a_sentence(flags: tuple[str, ...], message: str) -> None:
    err = io.StringIO()
    environment = {"HOME": "/nowhere"}
    given = ("doctor", "--master=http://127.0.0.1:1", *flags)

    assert dispatch(given, Terminal(io.StringIO(), err, environment)) == 1
    assert message in err.getvalue()


def test_without_a_cluster_there_is_nothing_to_check() -> None:
    err = io.StringIO()

    assert dispatch(("doctor",), Terminal(io.StringIO(), err, {"HOME": "/nowhere"})) == 1
    assert "no cluster is configured; give --kubeconfig=FILE" in err.getvalue()
