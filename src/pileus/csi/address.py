"""The address of `--http-endpoint`: HOST:PORT, or :PORT for all addresses."""

from ipaddress import ip_address

from pileus.dataclass import dataclass

LARGEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class HttpAddress:
    host: str
    """Name or IP address; empty: all addresses of the host."""
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> HttpAddress:
    """Returns the address. Raises ValueError with a text for users."""
    host, separator, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = str(ip_address(host[1:-1]))
    elif ":" in host:
        separator = ""
    if not separator or not port.isdecimal() or not 0 < int(port) <= LARGEST_PORT:
        raise ValueError(f'"{text}" is not an address: give HOST:PORT or :PORT, such as :8080')
    return HttpAddress(host, int(port))
