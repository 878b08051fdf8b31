from __future__ import annotations

import pytest

from everturn.web.access.visitor import Proxies, is_address, is_loopback_name, name_of_host


def visit(trusted: tuple[str, ...], peer: str, **headers: str) -> tuple[str, str, str, bool]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    visitor = Proxies(trusted).visitor({"client": (peer, 1), "scheme": "http"}, given)
    return visitor.address, visitor.scheme, visitor.host, visitor.is_forwarded


def test_without_trusted_proxies_nothing_forwarded_is_believed() -> None:
    seen = visit(
        (),
        "198.51.100.1",
        host="a.example",
        x_forwarded_for="10.0.0.1",
        x_forwarded_proto="https",
        x_forwarded_host="b.example",
    )
    assert seen == ("198.51.100.1", "http", "a.example", True)


def test_a_trusted_proxy_is_believed_about_its_own_client_only() -> None:
    seen = visit(
        ("10.0.0.0/8",),
        "10.0.0.2",
        host="inside",
        x_forwarded_for="6.6.6.6, 198.51.100.7, 10.0.0.3",
        x_forwarded_proto="http, https",
        x_forwarded_host="evil.example, Agent.Example",
    )
    assert seen == ("198.51.100.7", "https", "agent.example", True)


def test_a_chain_with_nonsense_in_it_stops_at_the_last_hop_that_is_known() -> None:
    assert visit(("10.0.0.2",), "10.0.0.2", x_forwarded_for="1.2.3.4, unknown")[0] == "10.0.0.2"


def test_an_invalid_scheme_is_ignored() -> None:
    assert visit(("10.0.0.2",), "10.0.0.2", x_forwarded_proto="javascript")[1] == "http"


@pytest.mark.parametrize(
    ("host", "name"),
    [("a.b:80", "a.b"), ("a.b", "a.b"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("::1", "::1"), ("", "")],
)
def test_a_port_is_not_part_of_the_name(host: str, name: str) -> None:
    assert name_of_host(host) == name


@pytest.mark.parametrize(
    "host",
    [
        "[::1]evil.com",
        "[::1]:80evil.com",
        "[::1]:80:80",
        "[::1",
        "::1]",
        "[localhost]",
        "[127.0.0.1]",
        "[]",
        "localhost:80evil.com",
        "localhost:80:80",
        "localhost@evil.com",
        "evil.com/@localhost",
        "local host",
        "localhost\x00",
        "x[::1]",
    ],
)
def test_an_invalid_host_has_no_name(host: str) -> None:
    assert not is_loopback_name(name_of_host(host))
    assert not is_address(name_of_host(host))


@pytest.mark.parametrize(
    "name", ["localhost", "a.localhost", "127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"]
)
def test_loopback_has_many_names(name: str) -> None:
    assert is_loopback_name(name)


@pytest.mark.parametrize(
    "name", ["", "localhost.com", "127.0.0.1.nip.io", "0.0.0.0", "10.0.0.1", "::", "127.1"]
)
def test_these_only_look_like_it(name: str) -> None:
    assert not is_loopback_name(name)


def test_addresses_and_names_are_distinguished() -> None:
    assert is_address("192.168.0.1")
    assert is_address("fe80::1")
    assert not is_address("192.168.0.1.example")
