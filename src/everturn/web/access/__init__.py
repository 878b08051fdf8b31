"""Who may use the server: visitors, accounts, tokens, passwords, throttling, the audit log."""
