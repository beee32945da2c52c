"""Online learning: a model for every key, which predicts each row before it learns from it.

Predicting first is what makes the predictions honest (prequential evaluation: test, then train), and what `metric`
measures. Rows are learned one by one, in order: that is what river's models are, and it makes the result independent of
how the stream was cut into batches. Between turns a key's model is bytes in the state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa

from headwater.model.entries import Suffixes, is_long, space_prefix
from headwater.model.errors import FlowError
from headwater.model.keys import encode_key, keyed_rows
from headwater.operators.base import Effect, Moment, Outputs, TimedLogic, TimedOperator
from headwater.operators.functions import WrongResult
from headwater.operators.learning.learner_bytes import LearnerBytes
from headwater.operators.learning.learning_tasks import Task, answer_type, check_target, needs_target, task_of
from headwater.operators.learning.model_columns import feature_column, feature_rows, is_number, plain
from headwater.operators.learning.models import check_clash, check_names, with_columns
from headwater.operators.learning.predictors import last_step
from headwater.operators.state import OperatorState
from headwater.operators.state_values import WrongState

LEARNERS: Final = 1  # the space of the models, one for each key
LIVE_BYTES_MAX: Final = 16 << 20  # of models that a worker keeps alive to spare itself reading them again


@dataclass(frozen=True, kw_only=True)
class Learn(TimedOperator):
    """A river model per key, trained by the rows of that key, which adds its prediction to each of them.

    `model` is a river model, or a function that makes one; every key begins with a copy of it. A row whose target is
    null or NaN gets a prediction and teaches nothing.
    """

    kind: ClassVar[str] = "learn"
    effect: ClassVar[Effect] = Effect.KEEPS
    key_columns: tuple[str, ...]
    model: Any
    features: tuple[str, ...]
    target: str | None = None
    output: str = "prediction"
    predict_first: bool = True
    metric: Any = None  # one of river's, kept for each key
    metric_output: str = "metric"  # where its value so far is written

    def __post_init__(self) -> None:
        """Make the model, once, so that all keys begin alike; and refuse what could not work."""
        if not hasattr(self.model, "learn_one") and callable(self.model):
            object.__setattr__(self, "model", self.model())
        if not self.features:
            raise FlowError("learn needs the columns that the model takes, such as features=('x', 'y')")
        check_names(self.features, self.added)
        if self.target in self.features:
            raise FlowError(f"target {self.target!r} is also a feature, so there would be nothing to learn")
        try:
            task = task_of(self.model)
            self._check_target(task)
            LearnerBytes((self.model, self.metric)).fresh()
        except (WrongResult, WrongState) as failure:
            raise FlowError(str(failure)) from failure
        except FlowError:
            raise
        except Exception as failure:  # pickling calls into whatever the model refers to
            raise FlowError(f"a {type(self.model).__name__} cannot be kept as state: {failure}") from failure

    def _check_target(self, task: Task) -> None:
        if self.target is None and (self.metric is not None or needs_target(self.model)):
            what = "a metric" if self.metric is not None else f"a {type(last_step(self.model)).__name__}"
            raise FlowError(f"{what} needs a target: name the column that holds the truth")
        if self.metric is None or task in (Task.CLUSTERS, Task.ANOMALIES):
            return
        if not self.metric.works_with(self.model):
            raise FlowError(f"{type(self.metric).__name__} does not measure a {type(last_step(self.model)).__name__}")

    @property
    def added(self) -> tuple[str, ...]:
        """The columns that come out beside those that went in."""
        return (self.output,) if self.metric is None else (self.output, self.metric_output)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that make the key."""
        return self.key_columns

    @property
    def state_settings(self) -> Mapping[str, object]:
        """A model that has learnt is put into one that is built alike."""
        return {"model": self.model, "features": self.features, "target": self.target, "metric": self.metric}

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The key, the features and the target."""
        target = () if self.target is None else (self.target,)
        return tuple(dict.fromkeys((*self.key_columns, *self.features, *target)))

    def open(self) -> TimedLogic:
        """Return the logic."""
        return LearnLogic(self)

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return the input's columns, the prediction, and the metric if there is one."""
        known = inputs[0]
        if known is None:
            return None
        check_clash(known, self.added)
        target = None if self.target is None else known.field(self.target).type
        try:
            check_target(self.model, self.target, target)
        except WrongResult as failure:
            raise FlowError(str(failure)) from None
        kind = answer_type(task_of(self.model), target)
        if kind is None:
            return None
        made = known.append(pa.field(self.output, kind))
        return made if self.metric is None else made.append(pa.field(self.metric_output, pa.float64()))


class Learner:
    """The model of one key, at work."""

    def __init__(self, parts: tuple[Any, ...], config: Learn, task: Task) -> None:
        """Take over a model and its metric."""
        self.parts = parts
        self.model, self.metric = parts
        self.learned = False  # since it was read
        self._config = config
        self._task = task
        self._supervised = needs_target(self.model)

    def take(self, features: dict[str, Any], truth: Any) -> tuple[Any, float | None]:
        """Predict and learn, in the order asked for; return the prediction and the metric so far."""
        teaches = truth is not None or not self._supervised
        if teaches and not self._config.predict_first:
            self._learn(features, truth)
        answer = self._predict(features, truth)
        if self.metric is not None and truth is not None:
            self._measure(features, truth, answer)
        if teaches and self._config.predict_first:
            self._learn(features, truth)
        return answer, None if self.metric is None else float(self.metric.get())

    def _learn(self, features: dict[str, Any], truth: Any) -> None:
        self.learned = True
        if self._supervised:
            self.model.learn_one(features, truth)
        else:
            self.model.learn_one(features)

    def _predict(self, features: dict[str, Any], truth: Any) -> Any:
        if self._task is not Task.ANOMALIES:
            return plain(self.model.predict_one(features))
        if not self._supervised:
            return plain(self.model.score_one(features))
        return None if truth is None else plain(self.model.score_one(features, truth))

    def _measure(self, features: dict[str, Any], truth: Any, answer: Any) -> None:
        """Update the metric; one that judges probabilities needs more than the answer."""
        self.learned = True
        if self._task is Task.CLASSES and not self.metric.requires_labels:
            answer = self.model.predict_proba_one(features)
        if answer is not None and answer != {}:  # as long as a classifier knows no class there is nothing to judge
            self.metric.update(truth, answer)


class LearnLogic:
    """Runs online learning. The models it keeps alive are those whose bytes are still the ones in the state."""

    def __init__(self, config: Learn) -> None:
        """Get ready to read and write models."""
        self._config = config
        self._task = task_of(config.model)
        self._bytes = LearnerBytes((config.model, config.metric))
        self._suffixes = Suffixes()
        self._live: dict[bytes, tuple[bytes, tuple[Any, ...]]] = {}
        self._live_bytes = 0

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Predict and learn, row by row, each by the model of its key."""
        config = self._config
        keyed = keyed_rows(batch, config.key_columns)  # without any, all rows teach one model
        suffixes = self._suffixes.of(keyed.keys)
        entries = [space_prefix(LEARNERS, 0) + suffix for suffix in suffixes]
        learners = [
            Learner(self._parts(entry, kept), config, self._task)
            for entry, kept in zip(entries, moment.state.read_many(entries), strict=True)
        ]
        rows = zip(keyed.codes.tolist(), feature_rows(batch, config.features), self._truths(batch), strict=True)
        answers = [learners[code].take(features, truth) for code, features, truth in rows]
        added = {config.output: self._answers(batch, [answer for answer, _ in answers])}
        if config.metric is not None:
            added[config.metric_output] = pa.array([value for _, value in answers], pa.float64())
        made = with_columns(batch, added)
        self._keep(keyed.keys, suffixes, entries, learners, moment.state)
        return (made,)

    def advance(self, moment: Moment) -> Outputs:
        """Nothing waits for time to pass."""
        return (None,)

    def wake_us(self, moment: Moment) -> int | None:
        """Nothing happens by the clock."""
        return None

    def _parts(self, entry: bytes, kept: bytes | None) -> tuple[Any, ...]:
        """Return the model of a key; one kept alive is taken out, since a call that raises leaves it half taught."""
        encoded, parts = self._live.pop(entry, (b"", ()))
        self._live_bytes -= len(encoded)
        if kept is None:
            return self._bytes.fresh()
        return parts if encoded == kept else self._bytes.decode(kept)

    def _keep(
        self,
        keys: list[Any],
        suffixes: list[bytes],
        entries: list[bytes],
        learners: list[Learner],
        state: OperatorState,
    ) -> None:
        for key, suffix, entry, learner in zip(keys, suffixes, entries, learners, strict=True):
            if not learner.learned:  # predicting alone leaves no trace in a river model
                continue
            encoded = self._bytes.encode(learner.parts)
            state.put(entry, encoded)
            if is_long(suffix[2:]):
                state.remember_long(encode_key(key))
            if self._live_bytes + len(encoded) > LIVE_BYTES_MAX:
                self._live.clear()
                self._live_bytes = 0
            self._live[entry] = (encoded, learner.parts)
            self._live_bytes += len(encoded)

    def _truths(self, batch: pa.RecordBatch) -> list[Any]:
        """Return what there is to learn of each row; None where nothing is."""
        name = self._config.target
        if name is None:
            return [None] * batch.num_rows
        column = feature_column(batch, name)
        check_target(self._config.model, name, column.type)
        if self._task is Task.NUMBERS:
            column = column.cast(pa.float64(), safe=False)
        return [None if value != value else value for value in column.to_pylist()]

    def _answers(self, batch: pa.RecordBatch, answers: list[Any]) -> pa.Array:
        target = None if self._config.target is None else batch.schema.field(self._config.target).type
        kind = answer_type(self._task, target)
        if kind is not None and is_number(kind) and not pa.types.is_boolean(kind):
            answers = [int(answer) if isinstance(answer, bool) else answer for answer in answers]
        try:
            return pa.array(answers, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as failure:
            model = type(last_step(self._config.model)).__name__
            raise WrongResult(
                f"what a {model} predicts does not fit target {self._config.target!r}, which is a {kind}: {failure}"
            ) from failure
