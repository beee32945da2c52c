"""Users' code for the executors: functions and processors of the user's own modules are pickled by value."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import cloudpickle

from headwater.loading.module_isolation import users_modules


@contextmanager
def users_code_by_value() -> Iterator[None]:
    """Let PySpark pickle the user's own modules by value inside the block, so that executors need no files."""
    pickle: Any = cloudpickle  # it carries no types
    known = pickle.list_registry_pickle_by_value()
    added = [module for name, module in users_modules().items() if name not in known]
    for module in added:
        pickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            pickle.unregister_pickle_by_value(module)
