"""The shell around the core, on fakes of its ports and on virtual time."""
