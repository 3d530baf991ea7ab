"""Beside the sessions: webhooks, schedules, retention, and the one port of all side jobs."""
