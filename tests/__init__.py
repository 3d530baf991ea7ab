"""The tests. Importable from the top of the repository: shared helpers live here."""
