"""A whole provider in the modern shape: its cloud is a file that lists machines.

The file is read again at each lookup, so machines can be added and removed at run time.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TypedDict, cast

import yaml

from pileus.cloud.errors import Misconfigured, Unavailable
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.model import (
    Absent,
    Address,
    AddressType,
    Found,
    Instance,
    InstanceId,
    InstanceState,
    NodeName,
    NodeRef,
)
from pileus.cloud.options import TEXT, Option, Options

SCHEME = "inventory"
NAME = Option("name", TEXT, "", "The name of the Kubernetes node.")
ID = Option("id", TEXT, "", "Identifies the machine; part of the provider ID, must not change.")
ZONE = Option("zone", TEXT, "", "Becomes the node's zone label.")
TYPE = Option("type", TEXT, "", "Becomes the node's instance type label.")
STATE = Option("state", TEXT, "running", "`running` or `stopped`.")
MACHINE = Options(NAME, ID, ZONE, TYPE, STATE)


class Entry(TypedDict, total=False):
    """The parts of a machine that are no plain text."""

    addresses: list[str]
    labels: dict[str, str]


@asynccontextmanager
async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
    """The provider: what the entry point names."""
    if not config.path:
        raise Misconfigured("the inventory provider needs a file: set --cloud-config")
    instances = Inventory(Path(config.path))
    await instances.read()  # reports a mistake in the file at start
    yield Cloud(name=SCHEME, instances=instances, owns=owns)


def owns(node: NodeRef) -> bool | None:
    """Nodes of other clouds are none of our business; a new node may be ours."""
    return node.provider_id.startswith(f"{SCHEME}://") if node.provider_id else None


class Inventory:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        """One reading of the file answers for all; there is no cache, so all is fresh."""
        del fresh
        machines = await self.read()
        by_id = {machine.provider_id: machine for machine in machines.values()}
        return {
            node.name: by_id.get(node.provider_id)
            or (None if node.provider_id else machines.get(node.name))
            or Absent(f"{self._path} lists no machine for {node.provider_id or node.name}")
            for node in nodes
            if owns(node) is not False
        }

    async def read(self) -> Mapping[str, Instance]:
        """The machines by name. Errors: `Unavailable` (file), `Misconfigured` (content)."""
        try:
            text = await asyncio.to_thread(self._path.read_text, encoding="utf-8")
        except OSError as error:
            raise Unavailable(f"cannot read {self._path}: {error.strerror}") from error
        return parse(text)


def parse(text: str) -> Mapping[str, Instance]:
    """Errors: `Misconfigured`, naming the machine; half a file is no inventory."""
    try:
        content: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Misconfigured(f"the inventory is not YAML: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("machines"), list):  # pyright: ignore[reportUnknownMemberType]
        raise Misconfigured('the inventory needs a list "machines"')
    inventory = cast("dict[str, object]", content)
    region = str(inventory.get("region", ""))
    machines = cast("list[dict[str, object]]", inventory["machines"])
    parsed = [machine_of(index, machine, region) for index, machine in enumerate(machines)]
    by_name = dict(parsed)
    if len(by_name) != len({machine.id for _, machine in parsed}) or len(by_name) != len(parsed):
        raise Misconfigured("the inventory names a machine or an id twice")
    return by_name


def machine_of(index: int, entry: Mapping[str, object], region: str) -> tuple[str, Instance]:
    parts = cast("Entry", entry)
    plain = {key: value for key, value in entry.items() if key not in Entry.__annotations__}
    try:
        values = MACHINE.read(plain)
        addresses = tuple(address_of(text) for text in parts.get("addresses", []))
        state = InstanceState(values[STATE])
    except (ValueError, Misconfigured) as error:
        raise Misconfigured(f"machine {index + 1} of the inventory: {error}") from error
    if not values[NAME] or not values[ID]:
        raise Misconfigured(f"machine {index + 1} of the inventory needs a name and an id")
    return values[NAME], Instance(
        id=InstanceId(values[ID]),
        provider_id=f"{SCHEME}://{values[ID]}",
        type=values[TYPE],
        zone=values[ZONE],
        region=region,
        addresses=addresses,
        labels=parts.get("labels", {}),
        state=state,
    )


def address_of(text: str) -> Address:
    """Private addresses are internal ones."""
    is_private = ip_address(text).is_private
    return Address(AddressType.INTERNAL_IP if is_private else AddressType.EXTERNAL_IP, text)
