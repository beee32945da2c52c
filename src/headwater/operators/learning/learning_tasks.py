"""What a river model learns, from which target, and what type its answers have."""

from enum import StrEnum
from typing import Any

import pyarrow as pa

from headwater.operators.functions import WrongResult
from headwater.operators.learning.model_columns import is_number
from headwater.operators.learning.predictors import last_step, library


class Task(StrEnum):
    """What a model learns."""

    CLASSES = "classes"
    NUMBERS = "numbers"
    CLUSTERS = "clusters"
    ANOMALIES = "anomalies"


def task_of(model: Any) -> Task:
    """Return what a river model learns, or say that it does not."""
    base = library("river.base", "river")
    last = last_step(model)
    kinds = {base.Classifier: Task.CLASSES, base.Regressor: Task.NUMBERS, base.Clusterer: Task.CLUSTERS}
    several = isinstance(last, base.MultiLabelClassifier | base.MultiTargetRegressor)
    found = None if several else next((task for kind, task in kinds.items() if isinstance(last, kind)), None)
    if found is None and hasattr(last, "score_one"):
        return Task.ANOMALIES
    if found is None:
        raise WrongResult(
            f"a {type(last).__name__} cannot learn here; give a river classifier, regressor, clusterer or anomaly "
            "detector, for one target"
        )
    return found


def needs_target(model: Any) -> bool:
    """Whether the model learns from a truth; the others learn from the features alone."""
    return bool(getattr(model, "_supervised", True))


def check_target(model: Any, target: str | None, kind: pa.DataType | None) -> None:
    """Refuse a target of which the model could learn nothing."""
    if kind is None or is_number(kind):
        return
    task = task_of(model)
    if task is Task.NUMBERS:
        raise WrongResult(f"target {target!r} is a {kind}, and a regressor learns numbers")
    if task is Task.CLASSES and not getattr(model, "_multiclass", True):
        raise WrongResult(
            f"target {target!r} is a {kind}, and a {type(last_step(model)).__name__} tells true from "
            "false; make it a boolean, or wrap the model in river's multiclass.OneVsRestClassifier"
        )


def answer_type(task: Task, target: pa.DataType | None) -> pa.DataType | None:
    """Return the type of the predictions: labels are what the target is; None if its type says nothing."""
    if task is Task.CLUSTERS:
        return pa.int64()
    if task is not Task.CLASSES:
        return pa.float64()
    if target is None or pa.types.is_null(target):
        return None
    return target.value_type if pa.types.is_dictionary(target) else target
