"""Who may use the server: accounts, tokens, passwords, throttling, the audit log."""
