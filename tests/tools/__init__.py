"""The tools room: registration, arguments, templates, egress, HTTP, built-ins."""
