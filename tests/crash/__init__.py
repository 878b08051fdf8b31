"""Crashes: a process that is killed, a disk that loses power, fills up or fails. See ``campaign``."""
