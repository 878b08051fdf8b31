"""Mail: a mailbox of the agent's own. Mails come in over IMAP, answers leave over SMTP.

Imports domain, tools and gateway's rendering. ``incoming`` reads a mail, with ``authentication`` and
``quotes``; ``outgoing`` writes one; ``mailbox`` and ``submission`` talk to the servers.
"""

from __future__ import annotations

from collections.abc import Mapping

from everturn.domain.clock import Clock
from everturn.domain.platform import Platform
from everturn.gateway.mail.platform import MailPlatform
from everturn.gateway.mail.settings import MailSettings

__all__ = ["CONFIG_ONLY", "SECRETS", "SENT_TO", "MailPlatform", "MailSettings", "platform"]

SECRETS = ("password",)
CONFIG_ONLY = ("tls", "private_hosts")
SENT_TO = ("imap_host", "imap_port", "smtp_host", "smtp_port")


def platform(account: str, settings: MailSettings, secrets: Mapping[str, str], clock: Clock) -> Platform:
    return MailPlatform(account, settings, secrets["password"], clock)
