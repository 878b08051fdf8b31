"""Which mails one's own server vouches for."""

from __future__ import annotations

import pytest

from everturn.gateway.mail.authentication import is_authentic

DMARC = "mx.example.net; dmarc=pass header.from=example.org"


@pytest.mark.parametrize(
    "results",
    [
        [DMARC],
        [
            "MX.example.net 1; spf=fail smtp.mailfrom=x.example; DMARC=pass (p=none dis=none) header.from=Example.org"
        ],
        ["mx.example.net;\r\n\tdkim=pass header.d=example.org header.s=a;\r\n\tspf=none"],
        ["mx.example.net; dkim=fail header.d=x.example; dkim=pass header.i=@example.org"],
        ["other.example; dmarc=fail header.from=example.org", DMARC],
        [DMARC, "mx.example.net; dmarc=fail header.from=example.org"],
        ["mx.example.net; dmarc = pass header.from = example.org"],
    ],
)
def test_f05_what_the_own_server_found_authentic_is(results: list[str]) -> None:
    assert is_authentic(results, "example.org", "mx.example.net")


@pytest.mark.parametrize(
    "results",
    [
        [],
        [""],
        ["mx.example.net"],
        ["mx.example.net; none"],
        ["mx.evil.example; dmarc=pass header.from=example.org"],
        ["mx.example.net.evil.example; dmarc=pass header.from=example.org"],
        ["mx.example.net; dmarc=fail header.from=example.org; dkim=pass header.d=example.org"],
        ["mx.example.net; dmarc=pass header.from=evil.example"],
        ["mx.example.net; dmarc=pass"],
        ["mx.example.net; dkim=pass header.d=evil.example"],
        ["mx.example.net; dkim=pass header.d=org"],
        ["mx.example.net; dkim=pass header.d=le.org"],
        ["mx.example.net; dkim=pass header.d=mail.example.org"],
        ["mx.example.net; spf=pass smtp.mailfrom=example.org"],
        # A sender's own words, in comments and quotation marks.
        ["mx.example.net; spf=pass (; dmarc=pass header.from=example.org) smtp.mailfrom=x.example"],
        ['mx.example.net; spf=pass smtp.mailfrom="; dmarc=pass header.from=example.org; x="@x.example'],
        ['mx.example.net; spf=pass smtp.mailfrom="\\"; dmarc=pass header.from=example.org; x="@x.example'],
        ["mx.example.net; spf=pass (\\); dmarc=pass header.from=example.org"],
        ["mx.example.net; dmarc=fail dmarc=pass header.from=example.org"],
        ["mx.example.net; dmarc=pass header.from=evil.example header.from=example.org"],
        # The server's own result stands above one that came with the mail.
        ["mx.example.net; dmarc=fail header.from=example.org", DMARC],
    ],
    ids=range(21),
)
def test_f05_nothing_else_is_authentic(results: list[str]) -> None:
    assert not is_authentic(results, "example.org", "mx.example.net")
