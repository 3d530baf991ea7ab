"""The worker process: it runs sessions and serves nothing, but its health where asked to."""

import uvloop

from app.bootstrap import open_service, settings_for
from app.bootstrap.door import HEALTH_PORT, bound, connections_within
from app.bootstrap.running import run_until_stopped, server_of
from app.settings import Loaded


def serve() -> int:
    """Work until SIGTERM or SIGINT, then hand running sessions over; return the exit code."""
    return uvloop.run(_serve(settings_for("serve")))


async def _serve(loaded: Loaded) -> int:
    port = loaded.settings.health_port
    most = connections_within(loaded.settings.max_connections)
    if port is None:
        async with open_service(loaded, "worker") as service:
            await run_until_stopped(service, None, [])
        return 0
    with bound(loaded.settings.host, port, HEALTH_PORT) as sockets:
        async with open_service(loaded, "worker") as service:
            server = server_of(service.health, most)
            await run_until_stopped(service, server, sockets)
            return 0 if server.started else 1
