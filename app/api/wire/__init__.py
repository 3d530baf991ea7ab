"""Requests read and answers written: bodies, parameters, problems, and how routes are described."""
