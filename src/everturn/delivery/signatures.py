"""Signatures of webhooks, as the Standard Webhooks specification defines them.

A message is signed with HMAC-SHA256 over its id, its time and its body. The header can hold several
signatures, so that a secret can be changed without refusing messages.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence

from everturn.domain.errors import Denied, Invalid

ID, TIME, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
TOLERANCE_S = 300  # how far the sender's clock may be off, and for how long a message can be repeated
_PREFIX = "whsec_"
_SECRET_BYTES_MIN = 24
_ID_CHARS_MAX = 200
_SIGNATURES_MAX = 8
_HINT = "Check the secret and the clock of the sender. Nothing was stored."


def read_secret(text: str) -> bytes:
    """The key that a secret such as ``whsec_…`` stands for. Raises Invalid."""
    try:
        key = base64.b64decode(text.strip().removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < _SECRET_BYTES_MIN:
        raise Invalid(
            "The secret of the webhook is not valid.",
            hint=f"It is {_PREFIX!r} and at least {_SECRET_BYTES_MIN} random bytes in base64.",
        )
    return key


def sign(key: bytes, message_id: str, time_s: int, body: bytes) -> dict[str, str]:
    """The headers that go with this message."""
    return {ID: message_id, TIME: str(time_s), SIGNATURE: _signature(key, message_id, str(time_s), body)}


def verify(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes, now_s: float) -> str:
    """The id of a message that was signed with one of the keys. Raises Denied.

    ``headers`` have names in lower case.
    """
    message_id, time_text = headers.get(ID, ""), headers.get(TIME, "")
    if not 0 < len(message_id) <= _ID_CHARS_MAX:
        raise Denied("The webhook has no id.", hint=f"Send the header {ID}.")
    is_number = time_text.isascii() and time_text.isdigit() and len(time_text) < 16
    if not is_number or abs(now_s - int(time_text)) > TOLERANCE_S:
        raise Denied("The time of the webhook is missing or too far from now.", hint=_HINT)
    given = headers.get(SIGNATURE, "").encode("utf-8", "replace").split()[:_SIGNATURES_MAX]
    wanted = [_signature(key, message_id, time_text, body).encode() for key in keys]
    if not any(hmac.compare_digest(one, other) for one in given for other in wanted):  # guard: f11
        raise Denied("The signature of the webhook is wrong.", hint=_HINT)
    return message_id


def _signature(key: bytes, message_id: str, time_text: str, body: bytes) -> str:
    signed = f"{message_id}.{time_text}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
