"""How many streams a process holds open at once; one more is refused, and the others go on."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from app.api.wire.problems import HttpProblem


class Places:
    """A bounded number of places, taken for as long as a stream lasts."""

    def __init__(self, most: int) -> None:
        """Have so many places, all free."""
        self._most = most
        self.taken = 0

    def check(self) -> None:
        """Let one more stream begin.

        Raises:
            HttpProblem: when no place is free.

        """
        if self.taken >= self._most:
            detail = (
                f"This process has {self._most} open streams, as many as it takes "
                "(SUREFOOT_MAX_STREAMS). Come back later, or ask for the events page by page."
            )
            headers = {"Retry-After": "2"}
            status = HTTPStatus.SERVICE_UNAVAILABLE
            raise HttpProblem(status, "too-many-streams", detail, headers=headers)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place while the block lasts.

        Raises:
            HttpProblem: when no place is free.

        """
        self.check()
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
