"""The promise under fire: the crash matrix and the soak."""
