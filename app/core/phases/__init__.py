"""The four phases: what is decided in each, as functions over a draft of events."""
