"""URLs of webhooks: their grammar, the allowed hosts, and which addresses are public. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

from dynatick.errors import ConfigurationError, PermanentError, shown

MAX_URL_CHARACTERS = 2048

_HOST = r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
# Narrower than RFC 3986, so that two parsers of a URL can't find two different hosts in it: no user, no password, no
# escapes in the host, no backslash, no space, ASCII only.
_URL = re.compile(
    rf"(?P<scheme>https?)://{_HOST}(?::(?P<port>\d{{1,5}}))?(?P<rest>[/?#][!-\[\]-~]*)?",
    re.ASCII | re.IGNORECASE,
)
_ONLY_HOST = re.compile(_HOST, re.ASCII)
_ALLOWED = "AllowedWebhookHosts"
_PORTS = {"https": 443, "http": 80}
EXPECTED_URL = (
    "expected https://host[:port]/path in printable ASCII, without user name or password; "
    "percent-encode other characters, and write other hosts in punycode"
)

# IANA's special-purpose registries as a list, because ``is_global`` of ``ipaddress`` differs between Python versions
# and has exceptions that don't fit here.
_NOT_PUBLIC = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # this network; 0.0.0.0 reaches the machine itself
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; AWS uses it inside VPCs
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local; the address of cloud metadata is here
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address in disguise
        "3fff::/20",  # documentation
    )
)
# All public IPv6 addresses are in this network. Outside are loopback, link-local, unique local, multicast, and the
# forms that contain an IPv4 address: mapped, compatible, NAT64.
_PUBLIC_IPV6 = ip_network("2000::/3")


def is_public(address: str) -> bool:
    """Whether an address, as the resolver writes it, belongs to the public internet."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and parsed not in _PUBLIC_IPV6:
        return False
    return parsed.is_global and not any(parsed in network for network in _NOT_PUBLIC)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The parts of a URL."""

    scheme: str  # http or https
    host: str  # lower case; an IPv6 address in brackets
    port: int
    path: str  # with the query, without the fragment


class PrivateHosts:
    """The hosts that may have private addresses (parameter ``WebhookPrivateHosts``).

    Names or addresses, without scheme and port. Raises ConfigurationError for anything else.
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._hosts = frozenset(_checked_host(host, "WebhookPrivateHosts") for host in hosts)

    def __contains__(self, host: str) -> bool:
        return canonical_host(host) in self._hosts


class Hosts:
    """The hosts that webhooks may call.

    ``allowed`` (parameter ``AllowedWebhookHosts``): names; ``*.example.com`` stands for all names below example.com;
    empty, or ``*`` alone, allows any host. ``private``: see PrivateHosts. Raises ConfigurationError for a text that is
    not a host.
    """

    def __init__(self, *, private: Iterable[str] = (), allowed: Iterable[str] = ()) -> None:
        self.private = PrivateHosts(private)
        allowed = [name.strip() for name in allowed]
        self._any = allowed in ([], ["*"])
        if self._any:
            allowed = []
        self._below = tuple(f".{_checked_host(n[2:], _ALLOWED)}" for n in allowed if n.startswith("*."))
        self._names = frozenset(_checked_host(n, _ALLOWED) for n in allowed if not n.startswith("*."))

    def allows(self, host: str) -> bool:
        """Whether the host is allowed. Its addresses are checked when a connection is opened."""
        name = canonical_host(host)
        return self._any or name in self._names or (bool(self._below) and name.endswith(self._below))


def check_url(url: object) -> None:
    """Refuses a URL that no installation would call. Raises PermanentError, without the URL."""
    _parse(url)


def parse_target(url: object, hosts: Hosts) -> Target:
    """The parts of a webhook's URL. http is allowed for private hosts only.

    Raises PermanentError, without the URL, which often contains tokens.
    """
    target = _parse(url)
    if target.scheme == "http" and target.host not in hosts.private:
        raise PermanentError("payload.url: expected https; plain http goes only to hosts in WebhookPrivateHosts")
    if not hosts.allows(target.host):
        raise PermanentError("payload.url: its host is not among AllowedWebhookHosts")
    return target


def _parse(url: object) -> Target:
    if not isinstance(url, str):
        raise PermanentError(f"payload.url: {EXPECTED_URL}")
    if len(url) > MAX_URL_CHARACTERS:
        raise PermanentError(f"payload.url: expected at most {MAX_URL_CHARACTERS} characters")
    match = _URL.fullmatch(url)
    if match is None:
        raise PermanentError(f"payload.url: {EXPECTED_URL}")
    scheme, host = match["scheme"].lower(), match["host"].lower()
    port = int(match["port"]) if match["port"] else _PORTS[scheme]
    if not _is_host(host) or not 0 < port < 65_536:
        raise PermanentError("payload.url: its host or its port is not valid")
    rest = (match["rest"] or "").partition("#")[0]
    return Target(scheme=scheme, host=host, port=port, path=rest if rest.startswith("/") else f"/{rest}")


def _checked_host(host: str, parameter: str) -> str:
    name = host.strip()
    found = name if _ONLY_HOST.fullmatch(name) else f"[{name}]"
    if not _is_host(found):
        problem = f"{shown(host)} is not a host; expected a name or an address, without port"
        raise ConfigurationError(parameter, problem)
    return canonical_host(found)


def _is_host(host: str) -> bool:
    """Whether a resolver accepts the host. An IPv6 address is in brackets."""
    if host.startswith("["):
        return _ipv6(host) is not None
    try:
        return bool(host.rstrip(".").encode("idna"))
    except UnicodeError:  # a part is empty, or longer than 63 characters
        return False


def canonical_host(host: str) -> str:
    """The normal form of a host; an IPv6 address without brackets."""
    address = _ipv6(host)
    return host.lower().removesuffix(".") if address is None else str(address)


def _ipv6(host: str) -> IPv6Address | None:
    try:
        return IPv6Address(host.strip("[]"))
    except ValueError:
        return None
