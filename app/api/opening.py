"""Content of sessions, for those who may read it."""

from app.runtime.ports.keys import SessionCipher
from app.runtime.refusals import Conflict
from app.runtime.sessions.verbs import Opened


def cipher_of(found: Opened) -> SessionCipher:
    """Return the cipher of a session.

    Raises:
        Conflict: when its content was erased.

    """
    if found.cipher is None:
        raise Conflict("The session's content was erased.", "session-erased")
    return found.cipher
