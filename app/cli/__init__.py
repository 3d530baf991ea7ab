"""The `surefoot` command: sessions and tools over HTTP, and the processes of the service itself."""
