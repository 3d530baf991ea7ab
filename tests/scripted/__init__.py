"""Scripted counterparts on real sockets: a model endpoint and a server of HTTP tools."""
