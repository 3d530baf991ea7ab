"""Tools: their registration, the reading of their arguments, and their execution.

    body ── definition.parse ──► ToolSpec ── arguments.Reader ──► Checked
                                     └────── runner.Tools ──────► ToolReply | ToolFailure

A tool only raises `ToolFailure`; what follows from a fault is decided in the core (TOOL-9).
"""
