"""The models that PRED begins with: those that come with the benchmark, and where it has none, ones of our own.

The benchmark's are those of dream-lab/riot-bench at c86414f, modules/tasks/src/main/resources (Apache 2.0), there
serialised objects of Weka 3.6: J48 with confidence 0.25 and at least two rows to a leaf, LinearRegression with M5's
selection and a ridge of 1e-8. It has no regression for FIT and nothing for GRID: theirs are what `riotbench.train`
makes of made-up rows, those that the first row of the benchmark's timer files asks for.
"""

from collections.abc import Mapping
from typing import Final

from .analytics import ANALYTICS
from .models import CLASSES, LEAF, DecisionTree, Model, ModelKind, Regression


def _three_classes(dataset: str, end_ms: int, bad_up_to: float, good_up_to: float) -> DecisionTree:
    """Return the shape that all trees of the benchmark have: two thresholds of the target."""
    analytics = ANALYTICS[dataset]
    target = analytics.attributes.index(analytics.target)
    return DecisionTree(
        name=analytics.model_name("DTC", end_ms),
        attributes=analytics.attributes,
        classes=CLASSES,
        attribute=(target, LEAF, target, LEAF, LEAF),
        threshold=(bad_up_to, 0.0, good_up_to, 0.0, 0.0),
        low=(1, 0, 3, 0, 0),
        high=(2, 0, 4, 0, 0),
        answer=(0, 0, 0, 1, 2),
    )


def _regression(dataset: str, end_ms: int, intercept: float, **coefficients: float) -> Regression:
    """Return a regression by the names of the attributes that it uses."""
    analytics = ANALYTICS[dataset]
    return Regression(
        name=analytics.model_name("MLR", end_ms),
        attributes=analytics.attributes,
        target=analytics.target,
        coefficients=tuple(coefficients.get(name, 0.0) for name in analytics.attributes),
        intercept=intercept,
    )


SHIPPED: Final[Mapping[tuple[str, ModelKind], Model]] = {
    ("city", "DTC"): _three_classes("city", 1422748810000, bad_up_to=22.0, good_up_to=29.0),
    ("city", "MLR"): _regression(
        "city",
        1422748810000,
        37.442739000196276,
        temperature=-0.5106896760749683,
        humidity=0.1550345386077423,
        dust=-0.0043941074441107295,
    ),
    ("taxi", "DTC"): _three_classes("taxi", 1358102664000, bad_up_to=10.0, good_up_to=18.5),
    ("taxi", "MLR"): _regression(
        "taxi",
        1358102664000,
        3.574164844831282,
        trip_time_in_secs=0.002167781090458324,
        trip_distance=2.347246557323501,
    ),
    ("fit", "DTC"): _three_classes("fit", 1417890600200, bad_up_to=-0.054422, good_up_to=0.016745),
    ("fit", "MLR"): _regression(
        "fit",
        1417890660000,
        0.05722392614840177,
        acc_ankle_x=0.0011370143753864884,
        acc_ankle_y=0.001483651185895461,
        acc_arm_y=-0.0010691603282434099,
    ),
    ("grid", "DTC"): _three_classes("grid", 1247511061000, bad_up_to=7.055, good_up_to=11.917),
    ("grid", "MLR"): _regression("grid", 1247511061000, 9.542316279069768),
}
