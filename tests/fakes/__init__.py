"""Fakes of the ports, a page each."""
