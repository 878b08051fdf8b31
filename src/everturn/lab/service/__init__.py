"""A real server with simulated users over HTTP, which is killed, stopped, frozen and given a wrong clock."""
