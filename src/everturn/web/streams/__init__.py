"""Event streams to browsers and other clients."""
