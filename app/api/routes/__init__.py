"""The operations of the HTTP API, one file per resource."""
