"""Say whether an address is one of this machine alone."""

from ipaddress import ip_address

NAME = "localhost"


def is_loopback(host: str) -> bool:
    """Return whether a host is loopback: an address that is, or ``localhost``; any other name may lead anywhere."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host.lower().rstrip(".") == NAME
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
