"""Whether a mail comes from the domain of its sender, according to the user's own mail server.

A sender can write any From header. The server that takes a mail in checks it (DMARC, DKIM) and says so in an
Authentication-Results header (RFC 8601), which begins with the server's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def is_authentic(results: Sequence[str], domain: str, authserv: str) -> bool:
    """True if the server says that a mail from this domain is authentic.

    ``results``: the Authentication-Results headers, from the top. Servers add theirs at the top, so only the
    first one with the server's name counts: one further down may have come with the mail.
    """
    for header in results:
        name, *findings = _split(header)
        if name.split(" ")[0].lower() == authserv.strip().lower():
            return _passes([_parse_result(text) for text in findings], domain.lower())
    return False


def _passes(findings: Sequence[dict[str, str]], domain: str) -> bool:
    dmarc = [found for found in findings if "dmarc" in found]
    if dmarc:
        return all(found["dmarc"] == "pass" and found.get("header.from") == domain for found in dmarc)
    return any(found.get("dkim") == "pass" and _signs_for(found, domain) for found in findings)


def _signs_for(found: dict[str, str], domain: str) -> bool:
    signer = found.get("header.d") or found.get("header.i", "").rpartition("@")[2]
    return "." in signer and (domain == signer or domain.endswith("." + signer))


def _parse_result(text: str) -> dict[str, str]:
    """``dkim=pass header.d=example.org`` as a mapping. A word that occurs twice is left out: there is no
    telling which of the two is the sender's."""
    pairs = [word.partition("=")[::2] for word in text.split(" ") if "=" in word]
    names = [name.lower() for name, _ in pairs]
    return {name.lower(): value.lower() for name, value in pairs if names.count(name.lower()) == 1}


def _split(header: str) -> list[str]:
    """The header's sections, without comments and with single spaces. Broken quoting: one empty section."""
    text = "".join(_visible(header))
    if "\0" in text:
        return [""]
    text = text.replace("= ", "=").replace(" =", "=")
    return [" ".join(section.split()) for section in text.split(";")]


def _visible(header: str) -> Iterator[str]:
    """Characters outside of comments; quoted ones as ``?``, so that none of them separates anything. A NUL at
    the end if a quotation or a comment is not closed."""
    depth, is_quoted, is_escaped = 0, False, False
    for char in " ".join(header.replace("\0", "").split()):
        if is_escaped:
            is_escaped = False
        elif char == "\\" and (is_quoted or depth):
            is_escaped = True
        elif is_quoted:
            is_quoted = char != '"'
        elif char == "(":
            depth += 1
        elif char == ")" and depth:
            depth -= 1
        elif depth:
            continue
        elif char == '"':
            is_quoted = True
            yield "?"
        else:
            yield char
    if depth or is_quoted:
        yield "\0"
