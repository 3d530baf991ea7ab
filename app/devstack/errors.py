"""What can go wrong with the embedded servers.

DevStackError
├── FolderInUseError   another process holds the data folder
└── ServerStartError   a server did not come up; the message ends with what it said
"""


class DevStackError(Exception):
    """The family of this room."""


class FolderInUseError(DevStackError):
    """Another living process works on this data folder."""


class ServerStartError(DevStackError):
    """A server did not start, or a step of its preparation failed."""
