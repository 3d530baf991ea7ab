"""The table of faults keeps up with the statements; `make mutants` tries them."""

import importlib

from tests.mutants.sql_faults import FAULTS


def test_every_fault_is_one_of_todays_statements() -> None:
    for fault in FAULTS:
        statement = getattr(importlib.import_module(fault.module), fault.statement)
        assert fault.applied(statement) != statement, fault
