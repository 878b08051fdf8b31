"""Telegram: one bot is one account. Needs the extra ``telegram`` (aiogram).

``platform`` makes it; ``updates`` reads what arrives; ``failures`` says what an error means. Imported only
when an account is configured: the client takes seconds to load.
"""

from everturn.gateway.telegram.platform import (
    CONFIG_ONLY,
    SECRETS,
    SENT_TO,
    TelegramPlatform,
    TelegramSettings,
    platform,
)

__all__ = ["CONFIG_ONLY", "SECRETS", "SENT_TO", "TelegramPlatform", "TelegramSettings", "platform"]
