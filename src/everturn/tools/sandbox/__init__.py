"""The sandbox around every process that a tool starts: mounts, system calls, limits, network."""
