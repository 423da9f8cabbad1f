"""The declared flags are those of the Go program, and ours."""

from pileus.app.settings import TABLE
from pileus.settings import feature_gates as gates

# Names and printed defaults as `cloud-controller-manager -v=1` of v1.37.1 logs them.
UPSTREAM = {
    line.partition("=")[0]: line.partition("=")[2]
    for line in """\
allocate-node-cidrs=false
allow-untagged-cloud=false
authentication-kubeconfig=
authentication-skip-lookup=false
authentication-token-webhook-cache-ttl=10s
authentication-tolerate-lookup-failure=false
authorization-always-allow-paths=[/healthz,/readyz,/livez]
authorization-kubeconfig=
authorization-webhook-cache-authorized-ttl=10s
authorization-webhook-cache-unauthorized-ttl=10s
bind-address=0.0.0.0
cert-dir=
cidr-allocator-type=RangeAllocator
client-ca-file=
cloud-config=
cloud-provider=
cluster-cidr=
cluster-name=kubernetes
concurrent-node-lifecycle-syncs=1
concurrent-node-status-updates=0
concurrent-node-syncs=1
concurrent-service-syncs=1
configure-cloud-routes=true
contention-profiling=false
controller-start-interval=0s
controllers=[*]
disable-http2-serving=false
enable-leader-migration=false
external-cloud-volume-plugin=
feature-gates=
help=false
http2-max-streams-per-connection=0
kube-api-burst=30
kube-api-content-type=application/vnd.kubernetes.protobuf
kube-api-qps=20
kubeconfig=
leader-elect=true
leader-elect-lease-duration=15s
leader-elect-renew-deadline=10s
leader-elect-resource-lock=leases
leader-elect-resource-name=cloud-controller-manager
leader-elect-resource-namespace=kube-system
leader-elect-retry-period=2s
leader-migration-config=
log-flush-frequency=5s
log-json-info-buffer-size=0
log-json-split-stream=false
log-text-info-buffer-size=0
log-text-split-stream=false
logging-format=text
master=
min-resync-period=12h0m0s
node-monitor-period=5s
node-status-update-frequency=5m0s
node-sync-period=0s
permit-address-sharing=false
permit-port-sharing=false
profiling=true
requestheader-allowed-names=[]
requestheader-client-ca-file=
requestheader-extra-headers-prefix=[x-remote-extra-]
requestheader-group-headers=[x-remote-group]
requestheader-uid-headers=[]
requestheader-username-headers=[x-remote-user]
route-reconciliation-period=10s
secure-port=10258
tls-cert-file=
tls-cipher-suites=[]
tls-curve-preferences=[]
tls-min-version=
tls-private-key-file=
tls-sni-cert-key=[]
use-service-account-credentials=false
v=0
version=false
vmodule=
webhook-bind-address=0.0.0.0
webhook-cert-dir=
webhook-disable-http2-serving=false
webhook-secure-port=10260
webhook-tls-cert-file=
webhook-tls-cipher-suites=[]
webhook-tls-curve-preferences=[]
webhook-tls-min-version=
webhook-tls-private-key-file=
webhook-tls-sni-cert-key=[]
webhooks=[]
""".splitlines()
}
NODE_IPAM = {
    "service-cluster-ip-range",
    "node-cidr-mask-size",
    "node-cidr-mask-size-ipv4",
    "node-cidr-mask-size-ipv6",
}


def test_every_flag_of_the_go_program_is_here_with_its_default():
    ours = {flag.name for group in TABLE.groups if group.ours for flag in group.flags}
    declared = {
        flag.name: flag.shown_default() for flag in TABLE if flag.name not in ours | NODE_IPAM
    }

    assert declared == UPSTREAM


def test_no_flag_is_declared_twice():
    names = [flag.name for group in TABLE.groups for flag in group.flags]

    assert len(names) == len(set(names)) == len(list(TABLE))


def test_every_flag_says_what_it_is_for_in_a_sentence():
    first_lines = {flag.name: flag.help.split("\n")[0] for flag in TABLE}

    assert not [name for name, line in first_lines.items() if not line.endswith((".", ":"))]


def test_every_default_is_one_that_the_flag_itself_would_read():
    for flag in TABLE:
        shown = flag.shown_default().removeprefix("[").removesuffix("]")
        if shown:
            assert flag.kind.parse(shown) == flag.default, flag.name


def test_the_gates_in_help_are_those_of_the_go_program():
    assert len(gates.described().splitlines()) == 42
