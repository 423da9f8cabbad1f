"""`pileus doctor`: checks a cluster and its cloud. Changes nothing.

Exit codes: 0 healthy · 2 findings · 1 the command could not run. docs/reference/doctor.md describes
the checks, the findings and the fields of the JSON form.
"""

from collections.abc import Iterator, Mapping, Sequence

import yaml

from pileus.cli.arguments import UsageError
from pileus.cli.cluster_command import (
    CONTEXT,
    Command,
    Request,
    Runner,
    json_text,
    run_cluster_command,
)
from pileus.cli.printed_commands import manager_flags, target_of
from pileus.cli.terminal import Ink, Style, Terminal
from pileus.cloud.finding import Finding, Severity
from pileus.doctor.doctor import Checked, Diagnosis, diagnose
from pileus.doctor.installation import in_pod, reading_flags
from pileus.doctor.observation import Expected, Observation
from pileus.doctor.reading import observe
from pileus.fix import parts_of
from pileus.settings.flags import Flag, Group
from pileus.settings.kinds import STRING

FINDINGS = 2
VERSION = 1
"""Version of the JSON form: raised when a field changes its meaning or is removed."""
OUTPUTS = ("text", "json", "yaml")
OUTPUT = Flag(
    "output", STRING, "text", "Output format: text, json or yaml.", short="o", only_flag=True
)
ACCOUNT = Flag(
    "manager-account",
    STRING,
    Expected().account,
    "Service account of the manager, as NAMESPACE/NAME; not set: that of the installed manager.",
    only_flag=True,
)
CLOUD_PROVIDER = Flag(
    "cloud-provider",
    STRING,
    "",
    "Name of the cloud provider, or a comma-separated list; empty: the cloud is not checked.",
)
COMMAND = Command(
    "Check a cluster and its cloud: API server, rights, leader election, nodes, webhooks, other "
    "managers, volumes, leftovers, credentials and quotas. Each finding has a reason and a fix. "
    "Changes nothing.\n\n"
    "Exit codes: 0 healthy, 2 findings, 1 the command could not run.",
    Group("Doctor", (CONTEXT, ACCOUNT, OUTPUT), ours=True),
    needs_cloud=False,
    cloud_flag=CLOUD_PROVIDER,
    outputs=OUTPUTS,
)
INKS = {Severity.ERROR: Ink.RED, Severity.WARNING: Ink.YELLOW, Severity.NOTE: Ink.DIM}
GOOD, BAD, ODD, UNREAD, SKIPPED = "✓", "✗", "!", "?", "-"
INDENT = 4
LABEL, COMMENT = "fix: ", "# "


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    def work(request: Request, run: Runner) -> int:
        account = request.values[ACCOUNT] if request.values.given(ACCOUNT) else ""
        if account and (account.count("/") != 1 or not all(account.split("/"))):
            raise UsageError(
                f'--manager-account: "{account}" is not NAMESPACE/NAME',
                f"for example --manager-account={Expected().account}",
            )
        seen = run(_observe(request, account))
        found = seen.installation
        more = reading_flags(found) if found else ("--cloud-provider=NAME",)
        target = target_of(request.values, more, in_pod(found) if found else "")
        diagnosis = diagnose(seen).with_fixes(target.aimed)
        terminal.show(shown(diagnosis, request.values[OUTPUT], Style.of(terminal)))
        return exit_code(diagnosis)

    return run_cluster_command(program, COMMAND, arguments, terminal, work)


async def _observe(request: Request, account: str) -> Observation:
    return await observe(request.config, request.world, account, manager_flags(request.values))


def exit_code(diagnosis: Diagnosis) -> int:
    return 0 if diagnosis.is_healthy else FINDINGS


def shown(diagnosis: Diagnosis, form: str, style: Style) -> str:
    if form == "json":
        return json_text(document(diagnosis))
    if form == "yaml":
        return yaml.safe_dump(document(diagnosis), sort_keys=False, allow_unicode=True)
    return as_text(diagnosis, style)


def as_text(diagnosis: Diagnosis, style: Style) -> str:
    lines: list[str] = []
    for finding in diagnosis.obstacles:  # first: they are why checks could not be made
        lines += [*_finding_lines(finding, style), ""]
    lines += [line for each in diagnosis.checked for line in _check_lines(each, style)]
    lines += ["", style.inked(summary(diagnosis), Ink.BOLD)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _check_lines(each: Checked, style: Style) -> Iterator[str]:
    mark, ink = mark_of(each)
    head = f"{style.inked(mark, ink)} {style.inked(each.check.title, Ink.BOLD)}"
    if each.unread is not None:
        first, *rest = style.lines(f"not checked: {each.unread.what} cannot be read", INDENT)
        yield head
        yield from (f"{'':{INDENT}}{style.inked(line, Ink.DIM)}" for line in (first, *rest))
        return
    if not each.findings:
        text = f"{each.check.title}: {each.summary}"
        first, *rest = style.lines(text, 2)
        yield f"{style.inked(mark, ink)} {first}"
        yield from (f"  {line}" for line in rest)
        return
    yield head
    for finding in each.findings:
        yield from _finding_lines(finding, style)


def mark_of(each: Checked) -> tuple[str, Ink]:
    severities = {finding.severity for finding in each.findings}
    if each.unread is not None:
        return UNREAD, Ink.YELLOW
    if each.is_skipped:
        return SKIPPED, Ink.DIM
    if Severity.ERROR in severities:
        return BAD, Ink.RED
    if Severity.WARNING in severities:
        return ODD, Ink.YELLOW
    return GOOD, Ink.GREEN


def _finding_lines(finding: Finding, style: Style) -> Iterator[str]:
    word = style.inked(finding.severity.value, INKS[finding.severity])
    indent, margin = " " * INDENT, INDENT + 2
    first, *rest = style.lines(
        f"{finding.severity.value} {finding.subject}: {finding.what} [{finding.id}]", margin
    )
    yield f"{indent}{word}{first.removeprefix(finding.severity.value)}"
    yield from (f"{indent}  {line}" for line in rest)
    if finding.reason:
        for line in style.lines(finding.reason, margin):
            yield f"{indent}  {style.inked(line, Ink.DIM)}"
    yield from (f"{indent}  {line}" for line in fix_lines(finding.fix, style, margin))


def fix_lines(fix: str, style: Style, margin: int) -> Iterator[str]:
    """Yields a fix. Its command can be pasted into a shell, also if it takes several lines."""
    if not fix:
        return
    advice, command, comment = parts_of(fix)
    whole = style.lines(f"{LABEL}{fix}", margin)
    if advice and (not command or len(whole) == 1):
        yield from whole
        return
    if advice:
        yield from style.lines(f"{LABEL}{advice}", margin)
    yield from style.command_lines("" if advice else LABEL, command, margin)
    for line in _comment_lines(comment, style, margin) if comment else ():
        yield style.inked(f"{COMMENT}{line}", Ink.DIM)


def _comment_lines(comment: str, style: Style, margin: int) -> Iterator[str]:
    """Yields a comment. A command in it stays in one line, which can be copied."""
    margin += len(COMMENT)
    said, command, _ = parts_of(comment)
    whole = style.lines(comment, margin)
    if len(whole) == 1 or not command:
        yield from whole
        return
    if said:
        yield from style.lines(said, margin)
    yield command


def summary(diagnosis: Diagnosis) -> str:
    made = sum(each.is_made for each in diagnosis.checked)
    checks = f"{made} of {len(diagnosis.checked)} checks made"
    if diagnosis.is_healthy:
        return f"Healthy: no problems found ({checks})."
    words = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
    counts = {word: diagnosis.count(severity) for severity, word in words.items()}
    found = ", ".join(f"{n} {word}{'s' if n > 1 else ''}" for word, n in counts.items() if n)
    return f"{found} ({checks})."


def document(diagnosis: Diagnosis) -> Mapping[str, object]:
    return {
        "version": VERSION,
        "healthy": diagnosis.is_healthy,
        "summary": {severity.value: diagnosis.count(severity) for severity in Severity},
        "checks": [
            {
                "id": each.check.id,
                "title": each.check.title,
                "made": each.is_made,
                "summary": each.summary if each.unread is None else each.unread.why,
            }
            for each in diagnosis.checked
        ],
        "findings": [
            *(
                _finding_document(each.check.id, finding)
                for each in diagnosis.checked
                for finding in each.findings
            ),
            *(_finding_document("", finding) for finding in diagnosis.obstacles),
        ],
    }


def _finding_document(check: str, finding: Finding) -> Mapping[str, str]:
    return {
        "check": check,
        "id": finding.id,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "what": finding.what,
        "reason": finding.reason,
        "fix": finding.fix,
    }
