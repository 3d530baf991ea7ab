"""Keywords which the stock validator answers wrongly or slowly."""

import pytest

from app.tools.validator import validator_for


@pytest.mark.req("TOOL-2")
@pytest.mark.parametrize(
    ("step", "value", "fits"),
    [
        (0.01, 19.99, True),
        (0.01, 0.07, True),
        (0.01, 1e15, True),
        (0.1, 0.3, True),
        (0.01, 19.995, False),
        (0.5, 2, True),
        (5, 15.0, True),
        (5, 16, False),
        (1e-300, 1e300, True),
        (1e300, 1e-300, False),
        (3, True, True),
        (3, "4", True),
    ],
)
def test_multiples_are_those_of_decimal_numbers(step: float, value: object, *, fits: bool) -> None:
    assert validator_for({"multipleOf": step}).is_valid(value) is fits
