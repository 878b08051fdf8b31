"""Seeded lives of a store beside a small model of what it must say."""
