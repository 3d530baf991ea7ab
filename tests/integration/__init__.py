"""The service as real processes on real servers: killed, stopped, restarted, taken over."""
