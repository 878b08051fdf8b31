"""What enters and leaves on its own: updates become turns, and answers are sent to their chats.

Imports domain, workspace and the address check of tools; the store and the engine arrive as contracts.
Called by gateway and app. Start with ``account.AccountService``, which serves one account of a platform.
"""

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.delivery.account import AccountService
    from everturn.delivery.context import AccountServices
    from everturn.delivery.notifications.service import NotificationService
    from everturn.delivery.settings import AccountSettings, DeliverySettings, NotificationSettings

__all__ = [
    "AccountService",
    "AccountServices",
    "AccountSettings",
    "DeliverySettings",
    "NotificationService",
    "NotificationSettings",
]

__getattr__ = lazy_names(__name__)
