"""The shell around the core: use cases, the driver of a session, and the ports to the world."""
