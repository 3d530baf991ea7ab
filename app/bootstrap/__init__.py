"""Wiring: settings become adapters, adapters become services, on one `AsyncExitStack`.

Two lifetimes only: what is made here lives as long as the process; the rest lives for a request
or a claim. No other module knows more than one room of the edges.
"""

from app.bootstrap.service import Role, Service, open_service, settings_for

__all__ = ["Role", "Service", "open_service", "settings_for"]
