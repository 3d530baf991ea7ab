"""The generated pages say what the code says."""

from tests.scripts.docs import pages


def test_generated_pages_are_up_to_date() -> None:
    """`python -m tests.scripts.docs` would change nothing."""
    stale = [path.name for path, text in pages().items() if path.read_text() != text]
    assert not stale, f"stale: {stale}; run `make docs`"
