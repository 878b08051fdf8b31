"""What enters and leaves on its own: chats, inbox, outbox, leases of accounts."""
