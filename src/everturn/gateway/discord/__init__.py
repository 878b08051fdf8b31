"""Discord: one bot is one account. Needs the extra ``discord`` (discord.py).

``platform`` makes it; ``updates`` reads what arrives; ``client`` is its HTTP client and what errors
mean.
"""

from everturn.gateway.discord.platform import (
    CONFIG_ONLY,
    SECRETS,
    SENT_TO,
    DiscordPlatform,
    DiscordSettings,
    platform,
)

__all__ = ["CONFIG_ONLY", "SECRETS", "SENT_TO", "DiscordPlatform", "DiscordSettings", "platform"]
