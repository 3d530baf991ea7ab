"""What the Makefile runs from the tests: traceability and the diagram."""
