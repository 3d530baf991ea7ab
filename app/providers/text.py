"""Text that can be stored and sent anywhere: valid Unicode without U+0000."""

from app.core.canonical import Json

_REPLACEMENT = "\ufffd"


def clean(text: str) -> str:
    """Return the text with lone surrogates and NUL replaced visibly; valid pairs are joined."""
    if "\0" in text:
        text = text.replace("\0", _REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_json(value: Json) -> Json:
    """Return a JSON value with every text in it cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value


def open_pair(text: str) -> bool:
    """Return whether the text ends in the first half of a surrogate pair."""
    return bool(text) and "\ud800" <= text[-1] <= "\udbff"
