"""From the command line to the app, and to the exit codes of the Go program."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pileus.app.errors import CommandFailed, Fatal
from pileus.cli.run import main
from pileus.cli.terminal import Terminal
from pileus.cloud.choice import CloudSettings
from pileus.controllers.node.settings import NodeSettings
from pileus.objects.settings import ClusterSettings
from pileus.settings.config import Config
from pileus.telemetry.log import Log
from pileus.telemetry.logs import Verbosity

LOG = Log(__name__)
LINE = re.compile(r"^([IWEF])\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] (.*)$", re.MULTILINE)


@dataclass
class Session:
    """One call of the command, with an app that only notes its configuration."""

    environment: dict[str, str] = field(default_factory=dict[str, str])
    app: Callable[[Config, Verbosity], int] | None = None
    out: io.StringIO = field(default_factory=io.StringIO)
    err: io.StringIO = field(default_factory=io.StringIO)
    started: list[Config] = field(default_factory=list[Config])

    def call(self, *arguments: str) -> int:
        terminal = Terminal(self.out, self.err, self.environment)
        return main("cloud-controller-manager", arguments, terminal, self._start)

    def _start(self, config: Config, verbosity: Verbosity) -> int:
        self.started.append(config)
        return self.app(config, verbosity) if self.app else 0

    def logged(self) -> list[tuple[str, str]]:
        return LINE.findall(self.err.getvalue())


def test_a_good_command_line_starts_the_app_with_its_configuration():
    session = Session(environment={"PILEUS_CLUSTER_NAME": "c"})

    assert session.call("--cloud-provider=local", "--node-label-sync") == 0

    (config,) = session.started
    assert config[CloudSettings].provider == "local"
    assert config[ClusterSettings].name == "c"
    assert config[NodeSettings].sync_labels
    assert session.out.getvalue() == session.err.getvalue() == ""


def test_help_goes_to_stdout_and_starts_nothing():
    session = Session()

    assert session.call("--help", "--cloud-provider=local") == 0
    assert session.out.getvalue().startswith("The cloud-controller-manager connects")
    assert "\nUsage:\n  cloud-controller-manager [flags]\n" in session.out.getvalue()
    assert session.err.getvalue() == ""
    assert not session.started


def test_the_version_is_printed():
    session = Session()

    assert session.call("--version") == 0
    assert session.out.getvalue().startswith("Kubernetes v1.37.1 (Pileus ")
    assert not session.started


def test_an_unknown_flag_is_answered_with_usage_error_and_the_one_meant():
    session = Session()

    assert session.call("--cloud-providr=x") == 1
    assert session.err.getvalue().startswith("Usage:\n  cloud-controller-manager [flags]\n")
    assert session.err.getvalue().endswith(
        "\n\nError: unknown flag: --cloud-providr\ndid you mean --cloud-provider?\n"
    )
    assert session.out.getvalue() == ""


def test_a_stray_argument_is_refused_without_the_long_usage():
    session = Session()

    assert session.call("--leader-elect", "false") == 1
    assert session.err.getvalue().startswith(
        'Error: "cloud-controller-manager" does not take any arguments, got ["false"]\n'
    )
    assert not session.started


def test_a_wrong_configuration_is_told_plainly_and_as_a_log_line():
    session = Session()

    assert session.call("--controllers=foo") == 1
    message = (
        '[--controllers: "foo" is not in the list of known controllers, '
        "--cloud-provider cannot be empty]"
    )
    assert session.err.getvalue().splitlines()[0] == message
    quoted = message.replace('"', '\\"')
    assert session.logged() == [("E", f'"command failed" err="{quoted}"')]
    assert not session.started


def test_wrong_logging_flags_are_told_before_anything_else():
    session = Session()

    assert session.call("--logging-format=foo") == 1
    assert session.err.getvalue().splitlines()[0] == (
        '--logging-format: format: Invalid value: "foo": Unsupported log format; use text or json'
    )
    assert len(session.logged()) == 1


def test_a_deprecated_flag_is_mentioned_and_taken():
    session = Session()

    assert session.call("--cloud-provider=local", "--allow-untagged-cloud") == 0
    assert session.err.getvalue().startswith("Flag --allow-untagged-cloud has been deprecated, ")
    assert session.started[0][CloudSettings].allow_untagged


@pytest.mark.parametrize("flag", ["--cluster-cidr", "--service-cluster-ip-range"])
def test_a_cidr_with_host_bits_is_accepted_with_a_warning(flag: str):
    session = Session()

    assert session.call("--cloud-provider=local", f"{flag}=10.244.0.1/16") == 0
    (line,) = (text for _, text in session.logged() if "host bits" in text)
    assert f'flag="{flag}" given="10.244.0.1/16" used="10.244.0.0/16"' in line


@pytest.mark.parametrize(
    "flag", ["--cluster-cidr=x", "--service-cluster-ip-range=x", "--cidr-allocator-type=x"]
)
def test_an_invalid_flag_that_no_controller_reads_is_accepted_with_a_warning(flag: str):
    session = Session()

    assert session.call("--cloud-provider=local", flag) == 0
    (line,) = (text for _, text in session.logged() if "unless a controller reads it" in text)
    assert flag.partition("=")[0] in line


def test_a_rate_of_0_is_accepted_with_a_warning_about_what_it_means():
    session = Session()

    assert session.call("--cloud-provider=local", "--kube-api-qps=0", "--kube-api-burst=0") == 0
    lines = [text for _, text in session.logged() if "low request rate" in text]
    assert [line.partition("flag=")[2] for line in lines] == [
        '"--kube-api-qps" used="5"',
        '"--kube-api-burst" used="10"',
    ]


def test_all_flags_are_logged_at_verbosity_1_with_secrets_masked():
    session = Session(environment={"PILEUS_CLUSTER_NAME": "c"})

    session.call("--cloud-provider=local", "-v=1", "--master=https://me:hush@host")

    lines = [text for _, text in session.logged()]
    assert '"FLAG" name="--cluster-name" value="c" source="environment"' in lines
    assert '"FLAG" name="--min-resync-period" value="12h0m0s" source="default"' in lines
    assert '"FLAG" name="--master" value="https://me:***@host" source="flag"' in lines
    assert "hush" not in session.err.getvalue()


def fail_with(error: Exception) -> Callable[[Config, Verbosity], int]:
    def app(config: Config, verbosity: Verbosity) -> int:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code", "logged"),
    [
        (CommandFailed("no lease"), 1, [("E", '"command failed" err="no lease"')]),
        (Fatal("no cloud"), 255, [("F", '"no cloud"')]),
        (RuntimeError("token=abc"), 2, []),
    ],
)
def test_each_way_to_fail_has_its_exit_code(
    error: Exception, code: int, logged: list[tuple[str, str]]
):
    session = Session(app=fail_with(error))

    assert session.call("--cloud-provider=local") == code
    assert session.logged() == logged


def test_a_bug_shows_its_traceback_without_secrets():
    session = Session(app=fail_with(RuntimeError("token=abc")))

    session.call("--cloud-provider=local")

    assert session.err.getvalue().startswith("Traceback (most recent call last):\n")
    assert session.err.getvalue().endswith("RuntimeError: token=***\n")


def test_the_app_can_change_the_verbosity_while_it_runs():
    def app(config: Config, verbosity: Verbosity) -> int:
        LOG.info("before", v=3)
        verbosity.set(3)
        LOG.info("after", v=3)
        return 0

    session = Session(app=app)

    assert session.call("--cloud-provider=local") == 0
    assert session.logged() == [("I", '"after"')]


def test_information_goes_to_stdout_when_streams_are_split():
    def app(config: Config, verbosity: Verbosity) -> int:
        LOG.info("news")
        LOG.error("bad")
        return 0

    session = Session(app=app)
    gate = "--feature-gates=LoggingAlphaOptions=true"

    session.call("--cloud-provider=local", gate, "--log-text-split-stream")

    assert '"news"' in session.out.getvalue()
    assert session.logged() == [("E", '"bad"')]
