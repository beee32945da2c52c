"""The twin: the same graph as a stock Structured Streaming query, on any Spark master."""

from headwater.runtime.structured.query import Ending, StructuredStatus, run_structured
from headwater.runtime.structured.refusals import refusals
from headwater.runtime.structured.settings import StructuredSettings

__all__ = ["Ending", "StructuredSettings", "StructuredStatus", "refusals", "run_structured"]
