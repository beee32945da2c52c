"""All joins: of two streams within windows or within an interval, and of a stream with a table."""

from headwater.operators.enriching import Enrich, EnrichKind
from headwater.operators.joins.interval_join import IntervalJoin
from headwater.operators.joins.joining import JoinKind
from headwater.operators.joins.window_join import WindowJoin

__all__ = ["Enrich", "EnrichKind", "IntervalJoin", "JoinKind", "WindowJoin"]
