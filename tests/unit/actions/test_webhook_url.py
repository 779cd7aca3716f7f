"""URLs, allowed hosts and public addresses of webhooks."""

import pytest

from dynatick.actions.webhook_url import EXPECTED_URL, Hosts, PrivateHosts, is_public, parse_target
from dynatick.errors import ConfigurationError, PermanentError


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1", "9.255.255.255", "11.0.0.0", "52.94.236.248", "100.63.255.255", "100.128.0.0", "126.255.255.255",
        "128.0.0.0", "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0",
        "198.17.255.255", "198.20.0.0", "223.255.255.255", "2600:1f18::1", "2a00:1450:4001:81b::200e",
    ],
)  # fmt: skip
def test_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "0.1.2.3", "::",  # unspecified
        "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.1.1",  # private
        "100.64.0.1", "100.127.255.255",  # carrier-grade NAT
        "127.0.0.1", "127.255.255.254", "::1",  # loopback
        "169.254.169.254", "fd00:ec2::254",  # metadata of EC2
        "169.254.170.2",  # credentials of ECS
        "169.254.100.1",  # inside Lambda
        "192.0.0.1", "192.0.0.9",  # protocol assignments
        "192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1",  # documentation
        "192.88.99.1",  # 6to4 relay
        "198.18.0.1", "198.19.255.255",  # benchmarks
        "224.0.0.1", "239.255.255.255", "ff02::1",  # multicast
        "240.0.0.1", "255.255.255.255",  # reserved, broadcast
        "::127.0.0.1", "::8.8.8.8",  # IPv4-compatible
        "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:8.8.8.8",  # IPv4-mapped, IPv4-translated
        "64:ff9b::8.8.8.8", "64:ff9b::7f00:1", "64:ff9b:1::1",  # NAT64, local NAT64
        "100::1", "2001::1", "2001:10::1", "2001:20::1",  # discard, Teredo, ORCHID, ORCHIDv2
        "2002:7f00:1::1", "2002:808:808::1",  # 6to4 of 127.0.0.1 and of 8.8.8.8
        "4000::1", "5f00::1",  # unassigned, segment routing
        "fc00::1", "fe80::1", "fe80::1%eth0", "fec0::1",  # unique local, link-local, site-local
        "", "localhost", "127.1", "0x7f.0.0.1", "2130706433",  # no address
    ],
)  # fmt: skip
def test_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://example.com", ("https", "example.com", 443, "/")),
        ("HTTPS://Example.COM:8443/A/b?c=D", ("https", "example.com", 8443, "/A/b?c=D")),
        ("https://example.com?q=1", ("https", "example.com", 443, "/?q=1")),
        ("https://example.com#part", ("https", "example.com", 443, "/")),
        ("https://example.com/a?b#c?d#e", ("https", "example.com", 443, "/a?b")),
        ("https://example.com//a/../b", ("https", "example.com", 443, "//a/../b")),
        ("https://example.com/@a:b%20c", ("https", "example.com", 443, "/@a:b%20c")),
        ("https://my_host-1.example.:1/", ("https", "my_host-1.example.", 1, "/")),
        ("https://xn--bcher-kva.example/", ("https", "xn--bcher-kva.example", 443, "/")),
        ("https://[2606:4700::1]:65535/x", ("https", "[2606:4700::1]", 65535, "/x")),
        ("http://LocalHost:80/x", ("http", "localhost", 80, "/x")),
        ("http://localhost./", ("http", "localhost.", 80, "/")),
        ("http://[0:0::1]/", ("http", "[0:0::1]", 80, "/")),
    ],
)
def test_urls(url, target):
    found = parse_target(url, Hosts(private=["localhost", "::1"]))
    assert (found.scheme, found.host, found.port, found.path) == target


FORM = "payload.url: expected https://host"
NO_HOST = "payload.url: its host or its port is not valid"
NO_HTTP = "payload.url: expected https; plain http goes only to hosts in WebhookPrivateHosts"
REFUSED = {
    FORM: [
        None, 5, "", "example.com/x", "//example.com/x", "ftp://example.com/x", "file:///etc/passwd",
        "javascript:alert(1)", "https:/example.com", "https:///x", "https://", "https://:443/",
        # credentials, and other names before the host
        "https://user@example.com/", "https://user:password@example.com/", "https://@example.com/",
        "https://example.com:443@127.0.0.1/", "https://127.0.0.1\\@example.com/", "https://example.com\\x",
        # characters
        "https://example.com/a b", " https://example.com/", "https://example.com/\n",
        "https://example.com/\r\nX-Injected: 1", "https://example.com/\x00", "https://bücher.example/",
        "https://example.com/bücher", "https://127。0。0。1/", "https://127.0.0.1%2f.example.com/",
        "https://ex%61mple.com/",
        # addresses and ports
        "https://[fe80::1%25eth0]/", "https://[::1/", "https://[]/", "https://[v1.x]/", "https://example.com:/",
        "https://example.com:x/", "https://example.com:-1/", "https://example.com:123456/",
    ],
    NO_HOST: [
        "https://example.com:65536/", "https://example.com:0/", "https://[:::1]/", "https://a..b/", "https://./",
        f"https://{'a' * 64}.example/",
    ],
    NO_HTTP: ["http://example.com/", "http://localhost.example.com/", "http://127.0.0.1/"],
    "payload.url: expected at most 2048 characters": [f"https://example.com/{'a' * 2048}"],
}  # fmt: skip


@pytest.mark.parametrize(("message", "url"), [(message, url) for message, urls in REFUSED.items() for url in urls])
def test_urls_that_are_refused(message, url):
    with pytest.raises(PermanentError) as caught:
        parse_target(url, Hosts(private=["localhost"]))
    assert str(caught.value).startswith(message)
    assert str(caught.value) in (message, f"payload.url: {EXPECTED_URL}")  # nothing of the URL


@pytest.mark.parametrize(
    ("listed", "host"),
    [
        ("localhost", "localhost"), (" Hooks.Internal. ", "hooks.internal"), ("hooks.internal", "HOOKS.internal."),
        ("10.0.0.1", "10.0.0.1"), ("::1", "[::1]"), ("[::1]", "::1"), ("0:0:0:0:0:0:0:1", "[::1]"),
    ],
)  # fmt: skip
def test_private_hosts(listed, host):
    assert host in PrivateHosts([listed])
    assert host not in PrivateHosts()
    assert f"x{host}" not in PrivateHosts([listed])


@pytest.mark.parametrize(
    ("allowed", "hosts", "others"),
    [
        ((), ["anything.example"], []),
        (("*",), ["anything.example"], []),
        (("hooks.example.com",), ["hooks.example.com", "HOOKS.example.com."], ["example.com", "a.hooks.example.com"]),
        (("*.example.com",), ["a.b.example.com"], ["example.com", "badexample.com"]),
        (("*.example.com", "other.org"), ["other.org"], ["other.net"]),
    ],
)
def test_allowed_hosts(allowed, hosts, others):
    known = Hosts(allowed=allowed)
    assert [host for host in hosts + others if known.allows(host)] == hosts


NO_HOSTS = [
    *(("WebhookPrivateHosts", {"private": [host]})
      for host in ("", "http://a", "a:80", "*", "10.0.0.0/8", "a b", "[::1]:80", ".")),
    *(("AllowedWebhookHosts", {"allowed": hosts})
      for hosts in (["https://a"], ["*."], ["a b"], ["*.*.example.com"], ["*", "example.com"])),
]  # fmt: skip


@pytest.mark.parametrize(("parameter", "hosts"), NO_HOSTS)
def test_what_is_no_host_is_refused(parameter, hosts):
    with pytest.raises(ConfigurationError, match=f"{parameter}: .* is not a host"):
        Hosts(**hosts)
