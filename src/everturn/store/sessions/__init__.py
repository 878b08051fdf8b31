"""Sessions: their transcript, titles, full-text search, and documents for export and import."""
