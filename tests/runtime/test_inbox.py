"""Inbox rows of other releases."""

import json

from app.core.events import Policy
from app.core.inputs import Told
from app.runtime import inbox
from app.runtime.ports.sessions import InboxRow
from app.runtime.sealing import INBOX_CONTEXT
from app.storage.keys import MasterKeys


def test_what_a_newer_release_adds_to_a_row_is_left_out() -> None:
    """An API process of the next release writes rows that a worker of this one takes out."""
    _, cipher = MasterKeys({"k": b"k" * 32}).create("ses_1")
    sent = inbox.message(cipher, "go on", 2, Policy.STEER)
    content = json.loads(cipher.open(sent.payload, INBOX_CONTEXT)) | {"mood": "hurried"}
    payload = cipher.seal(json.dumps(content).encode(), INBOX_CONTEXT)
    read = inbox.read_inbox(InboxRow(1, sent.kind, payload), cipher, 5)
    assert read == Told(5, "go on", 2, Policy.STEER)
