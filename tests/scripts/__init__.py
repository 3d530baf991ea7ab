"""Scripts behind make targets: the docs from the code, the requirement report, the diagram."""
