"""The bill of materials of the image, in the format CycloneDX 1.5 (JSON)."""

import json
from collections.abc import Iterable
from urllib.parse import quote

from tools.build_image.debian import Package
from tools.build_image.wheels import Wheel

MEDIA_TYPE = "application/vnd.cyclonedx+json"


def document(
    reference: str,
    architecture: str,
    program: Wheel,
    packages: Iterable[Package],
    wheels: Iterable[Wheel],
) -> str:
    """Returns the bill as text. The same content gives the same text."""
    debian = [_debian(each, architecture) for each in packages]
    components = [*debian, *map(_wheel, wheels)]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {"type": "container", "name": reference, "version": program.version}
        },
        "components": sorted(components, key=lambda each: str(each["purl"])),
    }
    return json.dumps(bill, indent=1, sort_keys=True) + "\n"


def _debian(package: Package, architecture: str) -> dict[str, object]:
    version = quote(package.version, safe="~")
    purl = f"pkg:deb/debian/{package.name}@{version}?arch={architecture}&distro=debian-12"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": package.sha256}],
    }


def _wheel(wheel: Wheel) -> dict[str, object]:
    purl = f"pkg:pypi/{wheel.name}@{wheel.version}"
    described: dict[str, object] = {
        "type": "library",
        "bom-ref": purl,
        "name": wheel.name,
        "version": wheel.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": wheel.sha256}],
    }
    if wheel.license:
        described["licenses"] = [{"expression": wheel.license}]
    return described
