"""The egress guard: which addresses a tool may be called at (TOOL-16).

A host is resolved once, every address it has is checked, and the connection goes to exactly the
address that was checked: a second answer of the name server is never asked for. As it sits where
connections are made, redirects pass through it too.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

_CLOSED_V4: Final = tuple(
    IPv4Network(net)
    for net in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
"""Private, loopback, link-local, metadata, shared (CGNAT), reserved, documentation, multicast."""

_OPEN_V6: Final = IPv6Network("2000::/3")
_CLOSED_V6: Final = tuple(IPv6Network(net) for net in ("2001::/23", "2001:db8::/32", "3fff::/20"))
_NAT64: Final = IPv6Network("64:ff9b::/96")
_6TO4: Final = IPv6Network("2002::/16")
_NUMERIC_HOST: Final = re.compile(r"(?:.*\.)?(?:0[xX][0-9a-fA-F]*|[0-9]+)\.?")


class EgressRefusedError(Exception):
    """The address is not one that tools may reach."""


class UnresolvedError(Exception):
    """The host has no address, or the name server gave no answer."""


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host as the operating system resolves it."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class EgressGuard:
    """Resolves a host and checks what it resolves to; `allow` opens what is closed otherwise."""

    def __init__(
        self, *, allow: Sequence[Network] = (), resolver: Resolver = system_resolver
    ) -> None:
        self._allow = tuple(allow)
        self._resolver = resolver

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Return the addresses of a host, in order, all of them checked.

        Raises:
            EgressRefusedError: when one of them is closed.
            UnresolvedError: when there is none.

        """
        literal = literal_address(host)
        found = [literal] if literal is not None else await self._resolve(host, port)
        for address in found:
            if not self.permits(address):
                raise EgressRefusedError(
                    f"{host} is at an address that tools may not reach; "
                    "an operator can allow it (SUREFOOT_EGRESS_ALLOW)"
                )
        return found

    async def _resolve(self, host: str, port: int) -> list[Address]:
        try:
            answers = await self._resolver(host, port)
        except (OSError, UnicodeError):
            answers = []
        found = [ip_address(answer.partition("%")[0]) for answer in answers]
        if not found:
            raise UnresolvedError(f"{host} could not be resolved")
        return list(dict.fromkeys(found))

    def permits(self, address: Address) -> bool:
        """Return whether an address is public or allowed; what it embeds counts as the address."""
        actual = embedded(address)
        if any(actual in net or address in net for net in self._allow):
            return True
        if isinstance(actual, IPv4Address):
            return not any(actual in net for net in _CLOSED_V4)
        return actual in _OPEN_V6 and not any(actual in net for net in _CLOSED_V6)


def embedded(address: Address) -> Address:
    """Return the IPv4 address inside a mapped, 6to4 or NAT64 address; else the address."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _6TO4:
        return IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    return address


def literal_address(host: str) -> Address | None:
    """Return the address that a host is written as: dotted, short, octal, hex, decimal or IPv6.

    Raises:
        EgressRefusedError: when it looks like a number and is none.

    """
    text = host.strip("[]")
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        pass
    if not _NUMERIC_HOST.fullmatch(text):
        return None
    try:
        return IPv4Address(socket.inet_aton(text.removesuffix(".")))
    except OSError:
        raise EgressRefusedError(f"{host} is neither a name nor an address") from None


def networks(text: str) -> list[Network]:
    """Return the networks of a comma-separated list of CIDRs.

    Raises:
        ValueError: when one is not a network.

    """
    return [ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip()]
