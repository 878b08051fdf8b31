"""Notifications: composed from what the store owes, and sent to browsers, webhooks and services (F10).

May import the rest of delivery. Called by app. Start with ``service.NotificationService``.
"""
