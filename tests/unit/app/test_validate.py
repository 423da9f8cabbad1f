"""A configuration that makes no sense is refused, with all that is wrong at once."""

import pytest

from pileus.admission.names import WEBHOOKS
from pileus.admission.settings import WebhookSettings
from pileus.app.settings import TABLE, build_config
from pileus.app.validate import logging_problems, problems, together
from pileus.settings.config import Config
from pileus.settings.sources import gather


def configured(*arguments: str) -> Config:
    line = ("--cloud-provider=local", *arguments)
    return build_config(gather(TABLE, "cloud-controller-manager", line, {}).values)


def test_the_defaults_with_a_provider_are_fine():
    assert problems(configured()) == ()
    assert logging_problems(configured()) == ()


WEBHOOK_ON = "--feature-gates=CloudControllerManagerWebhook=true"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cloud-provider="], "--cloud-provider cannot be empty"),
        (["--controllers=xyz"], '--controllers: "xyz" is not in the list of known controllers'),
        (
            ["--controllers=*,-rout"],
            '--controllers: "rout" is not in the list of known controllers',
        ),
        (
            ["--controllers=service-lb-controler"],
            (
                '--controllers: "service-lb-controler" is not in the list of known controllers'
                ' (did you mean "service-lb-controller"?)'
            ),
        ),
        ([WEBHOOK_ON, "--webhooks=x"], '--webhooks: "x" is not in the list of known webhooks'),
        (
            ["--leader-elect-resource-lock=endpoints"],
            '--leader-elect-resource-lock: resourceLock value must be "leases"',
        ),
        (
            ["--leader-elect-resource-name="],
            (
                '--leader-elect-resource-name: "" is not a valid name: use at most 253 lower case '
                "letters, digits and '-' or '.' between them"
            ),
        ),
        (
            ["--leader-elect-lease-duration=10s"],
            "leader-elect-lease-duration must be greater than leader-elect-renew-deadline",
        ),
        (
            ["--leader-elect-retry-period=9s"],
            "leader-elect-renew-deadline must be greater than leader-elect-retry-period*1.2",
        ),
        (
            ["--leader-elect-retry-period=0s"],
            "leader-elect-retry-period must be greater than zero",
        ),
        (
            [
                "--leader-elect-lease-duration=900ms",
                "--leader-elect-renew-deadline=500ms",
                "--leader-elect-retry-period=100ms",
            ],
            "leader-elect-lease-duration must be at least 1s: the Lease counts whole seconds",
        ),
        (["--concurrent-node-syncs=0"], "concurrent-node-syncs must be at least 1, but got 0"),
        (
            ["--concurrent-node-lifecycle-syncs=-2"],
            "concurrent-node-lifecycle-syncs must be at least 1, but got -2",
        ),
        (
            ["--concurrent-service-syncs=0"],
            "concurrent-service-syncs must be at least 1, but got 0",
        ),
        (
            ["--node-monitor-period=0s"],
            "node-monitor-period must be greater than zero, but got 0s",
        ),
        (
            ["--node-deletion-policy=imediate"],
            (
                "node-deletion-policy must be one of guarded, immediate, taint, report, "
                'but got "imediate" (did you mean "immediate"?)'
            ),
        ),
        (
            ["--node-deletion-max-fraction=0"],
            "node-deletion-max-fraction must be above 0 and at most 1, but got 0",
        ),
        (
            ["--node-deletion-max-fraction=20"],
            "node-deletion-max-fraction must be above 0 and at most 1, but got 20",
        ),
        (
            ["--node-deletion-unidentified-grace=-1s"],
            "node-deletion-unidentified-grace must not be negative, but got -1s",
        ),
        (
            ["--node-deletion-grace=-1s"],
            "node-deletion-grace must not be negative, but got -1s",
        ),
        (
            ["--node-deletion-window=0s"],
            "node-deletion-window must be greater than zero, but got 0s",
        ),
        (
            ["--node-status-update-frequency=-5m"],
            "node-status-update-frequency must be greater than zero, but got -5m0s",
        ),
        (
            ["--route-reconciliation-period=0"],
            "route-reconciliation-period must be greater than zero, but got 0s",
        ),
        (["--min-resync-period=-1s"], "min-resync-period must not be negative, but got -1s"),
        (
            ["--controller-start-interval=-1s"],
            "controller-start-interval must not be negative, but got -1s",
        ),
        (
            ["--authentication-token-webhook-cache-ttl=-1s"],
            "authentication-token-webhook-cache-ttl must not be negative, but got -1s",
        ),
        (["--kube-api-burst=-1"], "kube-api-burst must not be negative, but got -1"),
        (
            ["--secure-port=-1"],
            (
                "--secure-port -1 must be between 0 and 65535, inclusive. "
                "0 for turning off secure port"
            ),
        ),
        (
            ["--webhook-secure-port=65536"],
            (
                "--webhook-secure-port 65536 must be between 0 and 65535, inclusive. "
                "A value of 0 disables the webhook endpoint entirely."
            ),
        ),
        (
            ["--secure-port=10260"],
            "--webhook-secure-port cannot be the same value as --secure-port",
        ),
        (
            ["--tls-cert-file=a"],
            "--tls-cert-file and --tls-private-key-file must be given together",
        ),
        (
            ["--webhook-tls-private-key-file=a"],
            "--webhook-tls-cert-file and --webhook-tls-private-key-file must be given together",
        ),
        (
            ["--tls-min-version=1.2"],
            (
                '--tls-min-version: unknown tls version "1.2", possible are VersionTLS10, '
                "VersionTLS11, VersionTLS12, VersionTLS13"
            ),
        ),
        (
            ["--tls-cipher-suites=TLS_AES_128_GCM_SHA25"],
            (
                "--tls-cipher-suites: Cipher suite TLS_AES_128_GCM_SHA25 not supported or doesn't "
                'exist (did you mean "TLS_AES_128_GCM_SHA256"?)'
            ),
        ),
        (
            ["--tls-curve-preferences=1"],
            (
                "--tls-curve-preferences: unknown curve 1, possible are "
                "23, 24, 25, 29, 4587, 4588, 4589"
            ),
        ),
        (
            ["--requestheader-allowed-names=a, "],
            'empty value in "requestheader-allowed-names"',
        ),
        (
            ["--requestheader-uid-headers=X-Uid"],
            (
                "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid "
                "header - API aggregation will not work"
            ),
        ),
        (
            ["--authorization-always-allow-paths=/a*/b"],
            '--authorization-always-allow-paths: only trailing * allowed in "/a*/b"',
        ),
        (
            ["--node-cidr-mask-size-ipv4=33"],
            "node-cidr-mask-size-ipv4 must be between 0 and 32, but got 33",
        ),
        (
            ["--allocate-node-cidrs", "--controllers=*,nodeipam"],
            "--allocate-node-cidrs with node-ipam-controller needs --cluster-cidr",
        ),
        (
            ["--ssh-keys-from=secret:keys"],
            '--ssh-keys-from: "secret:keys" must be secret:NAMESPACE/NAME',
        ),
    ],
)
def test_each_contradiction_is_refused_with_its_reason(arguments: list[str], message: str):
    assert problems(configured(*arguments)) == (message,)


def test_defect_22_without_their_gate_webhooks_open_no_dead_port_but_cause_a_warning():
    off, on = configured("--webhooks=*"), configured(WEBHOOK_ON, "--webhooks=*")

    assert problems(off) == problems(on) == ()
    assert off[WebhookSettings].chosen() == ()
    assert on[WebhookSettings].chosen() == WEBHOOKS
    ((message, fields),) = off.warnings()
    assert message == "Serving no webhooks, because their feature gate is off"
    assert fields["fix"] == WEBHOOK_ON
    assert list(on.warnings()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--leader-elect=false", "--leader-elect-resource-lock=x"],
        ["--secure-port=0", "--webhook-secure-port=0"],
        ["--kube-api-qps=-1"],
        ["--min-resync-period=0s"],
        ["--concurrent-node-status-updates=-1"],
        ["--allocate-node-cidrs"],
        ["--requestheader-uid-headers=X-REMOTE-UID"],
        ["--tls-cert-file=a", "--tls-private-key-file=b"],
    ],
)
def test_what_makes_sense_is_accepted(arguments: list[str]):
    assert problems(configured(*arguments)) == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--log-flush-frequency=0s"],
            '--log-flush-frequency: flushFrequency: Invalid value: "0s": Must be greater than zero',
        ),
        (
            ["--logging-format=foo"],
            (
                '--logging-format: format: Invalid value: "foo": Unsupported log format; '
                "use text or json"
            ),
        ),
        (
            ["--logging-format=json", "--feature-gates=LoggingBetaOptions=false"],
            (
                "--logging-format: format: Forbidden: Log format json is disabled, "
                "see LoggingBetaOptions feature"
            ),
        ),
        (
            ["--logging-format=json", "--vmodule=a=1"],
            "--vmodule: Forbidden: Only supported for text log format",
        ),
        (
            ["--log-text-split-stream"],
            (
                "--log-text-split-stream: options.text.splitStream: Forbidden: "
                "Feature LoggingAlphaOptions is disabled"
            ),
        ),
        (
            ["--log-json-split-stream"],
            (
                "--log-json-split-stream: options.json.splitStream: Forbidden: "
                "Feature LoggingAlphaOptions is disabled"
            ),
        ),
        (
            ["--log-text-info-buffer-size=1Ki"],
            (
                "--log-text-info-buffer-size: options.text.infoBufferSize: Forbidden: "
                "Feature LoggingAlphaOptions is disabled"
            ),
        ),
        (
            ["--log-json-info-buffer-size=1Ki"],
            (
                "--log-json-info-buffer-size: options.json.infoBufferSize: Forbidden: "
                "Feature LoggingAlphaOptions is disabled"
            ),
        ),
    ],
)
def test_wrong_logging_flags_are_refused(arguments: list[str], message: str):
    assert logging_problems(configured(*arguments)) == (message,)


def test_alpha_logging_options_need_only_their_gate():
    gate = "--feature-gates=LoggingAlphaOptions=true"

    assert logging_problems(configured(gate, "--log-text-split-stream")) == ()


def test_several_problems_are_told_together():
    found = problems(
        configured("--cloud-provider=", "--controllers=foo,-bar,foo", "--concurrent-node-syncs=0")
    )

    assert together(found) == (
        '[--controllers: "foo" is not in the list of known controllers, '
        '--controllers: "bar" is not in the list of known controllers, '
        "concurrent-node-syncs must be at least 1, but got 0, --cloud-provider cannot be empty]"
    )
    assert together(("a", "a")) == "a"
