"""Event streams over HTTP: bytes of events, how many at once, and waiting that ends in time."""
