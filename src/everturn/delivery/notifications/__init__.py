"""Composes due notifications and sends them to browsers, webhooks and services (F10).

May import the rest of delivery. Called by app. Start with ``service.NotificationService``.
"""
