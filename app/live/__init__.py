"""Redis: live fan-out between processes and hot copies of state. Losing it costs time only."""
