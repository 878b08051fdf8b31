"""Bytes by their hash: packs in the data folder, in the database or in object storage; their collection."""
