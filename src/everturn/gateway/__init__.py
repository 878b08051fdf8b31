"""Messaging platforms: what people write there becomes turns, and answers go back.

Imports domain, tools and delivery. ``accounts`` runs the configured accounts; ``platforms`` finds a platform
by its name; ``rendering`` makes an answer messages; ``webhook`` is the platform for programs. What a platform
has to do is in ``domain.platform``; what is durable about it is in ``delivery``.
"""

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.gateway.accounts import GatewayAccounts, GatewayServices
    from everturn.gateway.dialects import Dialect
    from everturn.gateway.rendering import render

__all__ = ["Dialect", "GatewayAccounts", "GatewayServices", "render"]

__getattr__ = lazy_names(
    __name__,
    {
        "accounts": ("GatewayAccounts", "GatewayServices"),
        "dialects": ("Dialect",),
        "rendering": ("render",),
    },
)
