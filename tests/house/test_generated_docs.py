"""The generated pages say what the code says."""

from tests.scripts.docs import events_page, pages


def test_generated_pages_are_up_to_date() -> None:
    """`python -m tests.scripts.docs` would change nothing."""
    stale = [path.name for path, text in pages().items() if path.read_text() != text]
    assert not stale, f"stale: {stale}; run `make docs`"


def test_every_row_of_the_events_page_says_what_its_field_means() -> None:
    """The values inside events too, wherever in the core they are defined."""
    silent = [
        row for row in events_page().splitlines() if row.startswith("|") and "|  |" in row[-6:]
    ]
    assert silent == []
