from __future__ import annotations

import pytest

from everturn.tools.policy.hosts import host_label, host_of, hosts_in_code, is_host, is_listed


@pytest.mark.parametrize(
    ("host", "port", "label"),
    [
        ("Example.COM.", 443, "example.com"),
        ("example.com", 80, "example.com"),
        ("example.com", 22, "example.com:22"),
        ("2001:DB8::1", 443, "[2001:db8::1]"),
        ("[2001:db8::1]", 8080, "[2001:db8::1]:8080"),
    ],
)
def test_a_host_is_written_in_one_way(host: str, port: int, label: str) -> None:
    assert host_label(host, port) == label
    assert host_of(label) == label


@pytest.mark.parametrize("name", ["", "a b", "a@b", "a/b", "ex\u0430mple.com", "a\nb", "[x]", "a" * 254])
def test_a_word_that_only_looks_like_a_name_is_not_one(name: str) -> None:
    assert not is_host(name)


def test_a_star_stands_for_names_below_and_not_for_the_name_itself() -> None:
    listed = ("one.example", "*.two.example", "*.three.example:8443")
    for label in ("one.example", "a.two.example", "a.b.two.example", "a.three.example:8443"):
        assert is_listed(label, listed), label
    for label in ("a.one.example", "two.example", "atwo.example", "one.example:22", "a.three.example"):
        assert not is_listed(label, listed), label


def test_addresses_are_found_where_a_text_begins_with_one() -> None:
    code = """a = "https://one.example/x"; b = 'http://two.example:81'; # see https://three.example"""
    assert hosts_in_code(code) == ["one.example", "two.example:81"]
