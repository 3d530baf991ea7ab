"""Tests of spans, metrics and log lines."""
