"""The settings of one OpenStack cloud: the sections and keys of `cloud.conf`, with defaults.

A field is named as its key, with underscores: `load_balancer.floating_network_id` is
`floating-network-id` of `[LoadBalancer]`. Its annotation has the kind of value and a description;
`gcfg` reads the file by them, and the reference page is generated from them.
An empty text means that the key is not set.
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, field, fields
from enum import StrEnum
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pileus.dataclass import dataclass


class Kind(StrEnum):
    """How the value of a key is written."""

    TEXT = "text"
    SECRET = "secret"  # noqa: S105 -- a kind of value
    FLAG = "true or false"
    NUMBER = "whole number"
    DURATION = "duration"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Known:
    """The values that a key may have."""

    values: tuple[str, ...]
    is_complete: bool = True
    """False: other values are passed on with a warning."""


@dataclass(frozen=True, slots=True)
class Bounds:
    least: int
    most: int


Text = Annotated[str, Kind.TEXT]
Secret = Annotated[str, Kind.SECRET]
Flag = Annotated[bool, Kind.FLAG]
Number = Annotated[int, Kind.NUMBER]
Seconds = Annotated[float, Kind.DURATION]
Texts = Annotated[tuple[str, ...], Kind.LIST]


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """`[Global]`: where Keystone is, and the credentials of this process."""

    auth_url: Annotated[Text, "URL of Keystone v3."] = ""
    os_endpoint_type: Annotated[
        Text,
        "Interface of the endpoints in the catalogue; empty: public.",
        Known(("public", "internal", "admin", "publicURL", "internalURL", "adminURL")),
    ] = ""
    ca_file: Annotated[Text, "CA bundle that signed the certificates of the cloud."] = ""
    ca_data: Annotated[
        Text, "The same bundle inline, instead of ca-file: the PEM text, encoded with base64."
    ] = ""
    cert_file: Annotated[Text, "TLS client certificate. Needs key-file."] = ""
    key_file: Annotated[Text, "Key of the TLS client certificate. Needs cert-file."] = ""
    tls_insecure: Annotated[
        Flag,
        "Accept any certificate of the cloud. Only for tests.",
        Known(("true", "false", "")),
    ] = False
    username: Annotated[Text, "User, with a domain."] = ""
    user_id: Annotated[Text, "User, by ID."] = ""
    password: Annotated[Secret, "Password of the user."] = field(default="", repr=False)
    region: Annotated[Text, "Region in the catalogue."] = ""
    domain_id: Annotated[Text, "Domain of user and project, by ID."] = ""
    domain_name: Annotated[Text, "Domain of user and project."] = ""
    tenant_id: Annotated[Text, "Project, by ID."] = ""
    tenant_name: Annotated[Text, "Project, with a domain."] = ""
    tenant_domain_id: Annotated[Text, "Domain of the project, by ID."] = ""
    tenant_domain_name: Annotated[Text, "Domain of the project."] = ""
    user_domain_id: Annotated[Text, "Domain of the user, by ID."] = ""
    user_domain_name: Annotated[Text, "Domain of the user."] = ""
    trust_id: Annotated[Text, "Trust: act for its trustor, in its project."] = ""
    trustee_id: Annotated[Text, "User of the trust, instead of user-id."] = ""
    trustee_password: Annotated[Secret, "Password of the trustee, instead of password."] = field(
        default="", repr=False
    )
    application_credential_id: Annotated[Text, "Application credential, by ID."] = ""
    application_credential_name: Annotated[
        Text, "Application credential. Needs its user, by ID or with a domain."
    ] = ""
    application_credential_secret: Annotated[Secret, "Secret of the application credential."] = (
        field(default="", repr=False)
    )
    token: Annotated[Secret, "Token of Keystone. It cannot be renewed."] = field(
        default="", repr=False
    )
    use_clouds: Annotated[Flag, "Read clouds.yaml for keys that are not set here."] = False
    clouds_file: Annotated[
        Text,
        "Path of clouds.yaml. Empty: OS_CLIENT_CONFIG_FILE, then the usual places.",
    ] = ""
    cloud: Annotated[Text, "Entry of clouds.yaml. Empty: OS_CLOUD, or the only entry."] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Networking:
    """`[Networking]`: which addresses of machines become addresses of nodes."""

    ipv6_support_disabled: Annotated[Flag, "Leave out IPv6 addresses."] = False
    public_network_name: Annotated[Texts, "Networks whose addresses are ExternalIP."] = ()
    internal_network_name: Annotated[
        Texts, "If set, fixed addresses of other networks are left out."
    ] = ()
    address_sort_order: Annotated[Text, "Comma-separated CIDRs: order of node addresses."] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancerClass:
    """`[LoadBalancerClass "NAME"]`: networks that a Service selects by the name of the class."""

    floating_network_id: Annotated[Text, "External network of floating IPs."] = ""
    floating_subnet_id: Annotated[Text, "Subnet of floating IPs, by ID."] = ""
    floating_subnet: Annotated[
        Text, "Subnet of floating IPs: name, glob or `~expression`; `!` negates."
    ] = ""
    floating_subnet_tags: Annotated[
        Text, "Tags of the subnet of floating IPs, comma-separated; `&` all of them, `!` negates."
    ] = ""
    network_id: Annotated[Text, "Network of the VIP."] = ""
    subnet_id: Annotated[Text, "Subnet of the VIP, and of members without member-subnet-id."] = ""
    member_subnet_id: Annotated[Text, "Subnet of members."] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancer(LoadBalancerClass):
    """`[LoadBalancer]`: defaults of the load balancers of Services."""

    enabled: Annotated[Flag, "Manage load balancers."] = True
    lb_version: Annotated[Text, "Only v2.", Known(("v2",), is_complete=False)] = ""
    lb_provider: Annotated[
        Text,
        "Provider of Octavia.",
        Known(("amphora", "octavia", "ovn", "f5", "amphorav2"), is_complete=False),
    ] = "amphora"
    lb_method: Annotated[
        Text,
        "Distribution of connections. Not set and lb-provider is ovn: SOURCE_IP_PORT.",
        Known(("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT")),
    ] = "ROUND_ROBIN"
    create_monitor: Annotated[Flag, "Create health monitors."] = False
    monitor_delay: Annotated[Seconds, "Time between two health checks."] = 5.0
    monitor_timeout: Annotated[Seconds, "Time limit of a health check."] = 3.0
    monitor_max_retries: Annotated[
        Number, "Successful checks until a member is healthy.", Bounds(1, 10)
    ] = 1
    monitor_max_retries_down: Annotated[
        Number, "Failed checks until a member is unhealthy.", Bounds(1, 10)
    ] = 3
    manage_security_groups: Annotated[
        Flag, "Create a security group per Service on the ports of members."
    ] = False
    internal_lb: Annotated[Flag, "Make every load balancer internal."] = False
    node_selector: Annotated[
        Text, "Labels of nodes that become members: `k=v, k2`; `k=` is any value."
    ] = ""
    cascade_delete: Annotated[Flag, "Delete a load balancer with its parts in one request."] = True
    flavor_id: Annotated[Text, "Flavor of Octavia."] = ""
    availability_zone: Annotated[Text, "Availability zone of Octavia."] = ""
    enable_ingress_hostname: Annotated[
        Flag, "With PROXY protocol, publish a host name instead of the address."
    ] = False
    ingress_hostname_suffix: Annotated[Text, "Suffix of that host name."] = "nip.io"
    default_tls_container_ref: Annotated[
        Text, "Barbican reference of a certificate: listeners terminate TLS."
    ] = ""
    container_store: Annotated[
        Text,
        "`external`: do not check that the certificate exists in Barbican.",
        Known(("barbican", "external"), is_complete=False),
    ] = "barbican"
    max_shared_lb: Annotated[Number, "Services that share a load balancer, at most."] = 2
    provider_requires_serial_api_calls: Annotated[
        Flag, "Create the parts of a load balancer one by one."
    ] = False
    member_drain_time: Annotated[
        Seconds,
        "Time that a node that leaves keeps its connections and gets no new ones. Not read by the "
        "Go manager.",
    ] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """`[Metadata]`: the machine that this process runs on, and the time limit of requests."""

    search_order: Annotated[
        Text,
        "Where the metadata of the machine is searched.",
        Known((
            "configDrive,metadataService",
            "metadataService,configDrive",
            "configDrive",
            "metadataService",
        )),
    ] = "configDrive,metadataService"
    request_timeout: Annotated[Seconds, "Time limit of every request to OpenStack."] = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`[Route]`: routes to pod ranges."""

    router_id: Annotated[Text, "Router that gets the routes. Empty: no routes."] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStorage:
    """`[BlockStorage]`: volumes."""

    node_volume_attach_limit: Annotated[Number, "Volumes per node.", Bounds(1, 256)] = 256
    rescan_on_resize: Annotated[Flag, "Rescan the device when a volume is resized."] = False
    ignore_volume_az: Annotated[Flag, "Ignore the availability zones of volumes."] = False
    ignore_volume_microversion: Annotated[Flag, "Do not use microversions of Cinder."] = False


def no_classes() -> Mapping[str, LoadBalancerClass]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStackConfig:
    auth: Auth = field(default_factory=Auth)
    networking: Networking = field(default_factory=Networking)
    load_balancer: LoadBalancer = field(default_factory=LoadBalancer)
    classes: Mapping[str, LoadBalancerClass] = field(default_factory=no_classes)
    """`[LoadBalancerClass "NAME"]`, by name."""
    metadata: Metadata = field(default_factory=Metadata)
    route: Route = field(default_factory=Route)
    block_storage: BlockStorage = field(default_factory=BlockStorage)
    is_regional: bool = False
    """`OS_CCM_REGIONAL=true`: provider IDs have the region, `openstack://REGION/ID`."""


SECTIONS: Mapping[str, type] = {
    "Global": Auth,
    "Networking": Networking,
    "LoadBalancer": LoadBalancer,
    "Metadata": Metadata,
    "Route": Route,
    "BlockStorage": BlockStorage,
}
CLASS_SECTION = "LoadBalancerClass"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section, as its field declares it."""

    field: str
    kind: Kind
    description: str
    default: Any
    known: Known | None = None
    bounds: Bounds | None = None

    @property
    def name(self) -> str:
        return self.field.replace("_", "-")


def keys_of(section: type) -> tuple[Key, ...]:
    """Returns the keys of a section, in the order of its declaration."""
    hints = get_type_hints(section, include_extras=True)
    return tuple(_key(each, hints[each.name]) for each in fields(section))


def _key(declared: Field[Any], hint: object) -> Key:
    facts = tuple(_facts(hint))
    return Key(
        declared.name,
        next(fact for fact in facts if isinstance(fact, Kind)),
        next(fact for fact in facts if isinstance(fact, str) and not isinstance(fact, Kind)),
        declared.default,
        next((fact for fact in facts if isinstance(fact, Known)), None),
        next((fact for fact in facts if isinstance(fact, Bounds)), None),
    )


def _facts(hint: object) -> Iterator[object]:
    if get_origin(hint) is Annotated:
        yield from get_args(hint)[1:]
