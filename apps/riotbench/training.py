"""Training the two kinds of model: a decision tree as Weka's J48 has it, a linear regression as its LinearRegression.

The tree is grown by scikit-learn (entropy, at least two rows to a leaf) and then made what J48 would make of it. A
threshold becomes the largest value of the training rows that is not above scikit-learn's, which lies in the middle
between two. And it is pruned by C4.5's pessimistic error, which scikit-learn does not know: a leaf of n rows with e
errors is taken to have as many as the upper end of a confidence interval says, and a split that does not make fewer of
those goes. What remains different: scikit-learn chooses splits by gain, J48 by gain ratio, and J48 may lift a branch
into its parent's place.

The regression selects its attributes by M5's method: from all of them, the one with the smallest standardised
coefficient is left out as long as Akaike's criterion gets better. A ridge of 1e-8 keeps it solvable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from .models import CLASSES, LEAF, DecisionTree, Flags, Floats, Ints, Regression

CONFIDENCE: Final = 0.25  # J48's default, of its confidence interval
LEAF_ROWS_MIN: Final = 2
RIDGE: Final = 1e-8
COLINEAR: Final = 1.5  # a standardised coefficient beyond this tells of two attributes that say the same

_Z: Final = NormalDist().inv_cdf(1 - CONFIDENCE)
_PRUNING_SLACK: Final = 0.1  # C4.5 prefers the smaller tree also where it is a tenth of an error worse


def classes_by_percentile(values: Floats) -> Ints:
    """Return the class of each value, by its place among all: BAD below the median, then a class for each quarter.

    The borders are the percentiles 25, 50, 75 and 100; a value has the class of the last border that it reaches, or the
    first class. So only the largest value is EXCELLENT. `weibull` is how commons-math interpolates.
    """
    borders = np.percentile(values, [25, 50, 75, 100], method="weibull")
    reached: Ints = np.searchsorted(borders, values, side="right") - 1
    return np.maximum(reached, 0)


def trained_tree(name: str, attributes: Sequence[str], rows: Floats, classes: Ints) -> DecisionTree:
    """Return the tree that tells the classes of these rows apart."""
    from sklearn.tree import DecisionTreeClassifier  # takes a second to import, and only training needs it

    # Where splits are equally good scikit-learn draws one: the same one every time.
    grower = DecisionTreeClassifier(criterion="entropy", min_samples_leaf=LEAF_ROWS_MIN, random_state=0)
    grown = grower.fit(rows, classes).tree_
    counts = np.zeros((grown.node_count, len(CLASSES)))
    counts[:, grower.classes_] = grown.value[:, 0, :] * grown.n_node_samples[:, None]
    pruned = _pruned(grown.children_left, grown.children_right, counts)
    return _laid_out(name, attributes, grown, pruned, _largest_below(rows, grown), counts.argmax(axis=1))


def _pruned(low: Ints, high: Ints, counts: Floats) -> Flags:
    """Return which nodes are leaves after pruning; children have larger numbers than their parents."""
    is_leaf: Flags = low == LEAF
    rows = counts.sum(axis=1)
    errors = [expected_errors(n, e) for n, e in zip(rows, rows - counts.max(axis=1), strict=True)]
    for node in reversed(range(len(low))):
        if not is_leaf[node]:
            below = errors[low[node]] + errors[high[node]]
            is_leaf[node] = errors[node] <= below + _PRUNING_SLACK
            errors[node] = errors[node] if is_leaf[node] else below
    return is_leaf


def expected_errors(rows: float, errors: float) -> float:
    """Return how many errors a leaf is taken to make among so many rows when it made so many in training (C4.5)."""
    if errors == 0:
        return float(rows * (1 - CONFIDENCE ** (1 / rows)))
    if errors + 0.5 >= rows:
        return float(rows)
    share, z = (errors + 0.5) / rows, _Z
    spread = z * sqrt(share / rows - share * share / rows + z * z / (4 * rows * rows))
    return float(rows * (share + z * z / (2 * rows) + spread) / (1 + z * z / rows))


def _largest_below(rows: Floats, grown: Any) -> Floats:
    """Return the thresholds as C4.5 has them; scikit-learn compares values in single precision."""
    compared = rows.astype(np.float32)
    thresholds = np.zeros(grown.node_count)
    for node, (attribute, middle) in enumerate(zip(grown.feature, grown.threshold, strict=True)):
        if attribute >= 0:
            thresholds[node] = rows[compared[:, attribute] <= middle, attribute].max()
    return thresholds


def _laid_out(
    name: str,
    attributes: Sequence[str],
    grown: Any,
    is_leaf: Flags,
    thresholds: Floats,
    answers: Ints,
) -> DecisionTree:
    """Number the nodes that are left, parents before children, and write them down."""
    left, pending = [0], [0]
    while pending:
        node = pending.pop()
        if not is_leaf[node]:
            children = [int(grown.children_left[node]), int(grown.children_right[node])]
            left += children
            pending += children
    left.sort()
    place = {node: number for number, node in enumerate(left)}
    asks = [not is_leaf[node] for node in left]
    nodes = list(zip(left, asks, strict=True))
    return DecisionTree(
        name=name,
        attributes=tuple(attributes),
        classes=CLASSES,
        attribute=tuple(int(grown.feature[node]) if ask else LEAF for node, ask in nodes),
        threshold=tuple(float(thresholds[node]) if ask else 0.0 for node, ask in nodes),
        low=tuple(place[int(grown.children_left[node])] if ask else 0 for node, ask in nodes),
        high=tuple(place[int(grown.children_right[node])] if ask else 0 for node, ask in nodes),
        answer=tuple(0 if ask else int(answers[node]) for node, ask in nodes),
    )


@dataclass(frozen=True)
class _Moments:
    """All that a regression has to know of its rows, by standardised attributes: it is solved without them."""

    rows: int
    gram: Floats
    with_target: Floats
    target_squares: float

    def solved(self, chosen: Ints) -> Floats:
        """Return the coefficients of these attributes."""
        gram = self.gram[np.ix_(chosen, chosen)] + RIDGE * np.eye(len(chosen))
        return np.linalg.solve(gram, self.with_target[chosen]).astype(np.float64)

    def squared_error(self, chosen: Ints, coefficients: Floats) -> float:
        """Return the sum of squared errors that they make."""
        explained = coefficients @ (2 * self.with_target[chosen] - self.gram[np.ix_(chosen, chosen)] @ coefficients)
        return max(self.target_squares - float(explained), 0.0)


def trained_regression(name: str, attributes: Sequence[str], rows: Floats, target: str) -> Regression:
    """Return the regression of the target on those of the other attributes that are worth having."""
    place = list(attributes).index(target)
    means, spreads = rows.mean(axis=0), rows.std(axis=0, ddof=1) if len(rows) > 1 else np.zeros(rows.shape[1])
    usable = np.array([one for one in range(rows.shape[1]) if one != place and spreads[one] > 0], dtype=np.intp)
    coefficients = np.zeros(rows.shape[1])
    if len(usable) and spreads[place] > 0:
        standardised = (rows[:, usable] - means[usable]) / spreads[usable]
        aim = (rows[:, place] - means[place]) / spreads[place]
        moments = _Moments(len(rows), standardised.T @ standardised, standardised.T @ aim, float(aim @ aim))
        chosen, found = _selected(moments)
        coefficients[usable[chosen]] = found * spreads[place] / spreads[usable[chosen]]
    return Regression(
        name=name,
        attributes=tuple(attributes),
        target=target,
        coefficients=tuple(map(float, coefficients)),
        intercept=float(means[place] - coefficients @ means),
    )


def _selected(moments: _Moments) -> tuple[Ints, Floats]:
    """Leave out attributes as Weka's LinearRegression does: those that repeat others, then those not worth having."""
    chosen = np.arange(len(moments.with_target))
    found = moments.solved(chosen)
    while len(chosen) and np.abs(found).max() > COLINEAR:
        chosen = np.delete(chosen, np.abs(found).argmax())
        found = moments.solved(chosen)
    parameters = len(chosen) + 1
    freedom, full_error = moments.rows - parameters, moments.squared_error(chosen, found)
    criterion = freedom + 2.0 * parameters
    while len(chosen) and full_error > 0:
        fewer = np.delete(chosen, np.abs(found).argmin())
        refound = moments.solved(fewer)
        attempt = moments.squared_error(fewer, refound) / full_error * freedom + 2.0 * (len(fewer) + 1)
        if attempt >= criterion:
            break
        chosen, found, criterion = fewer, refound, attempt
    return chosen, found
