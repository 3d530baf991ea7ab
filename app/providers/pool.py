"""The connections to model endpoints: one pool a process, made when it is first needed."""

import asyncio
from typing import Final

import aiohttp

_CONNECT_S: Final = 10.0
_READ_BUFFER: Final = 256 * 1024


class Pool:
    """Holds the process's aiohttp session, which belongs to the loop that first asks for it.

    The session bounds nothing but connecting: keep-alive comments would reset a read timeout for
    ever, so whoever calls bounds the whole attempt. Nothing is redirected, as a redirect would take
    the key and the conversation to another host.
    """

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """Return the session of the running loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, loop=asyncio.get_running_loop()),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                read_bufsize=_READ_BUFFER,
            )
        return self._session

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
