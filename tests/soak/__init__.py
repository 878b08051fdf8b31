"""Soak: a real server used by many people while it is killed and stopped. The long version is ``everturn lab``."""
