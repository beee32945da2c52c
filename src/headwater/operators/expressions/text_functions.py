"""What expressions do with texts. Places in a text are counted from 1, in characters, as in Spark."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.expressions.fitting import Fitted, Maker, Values, computed, kernel
from headwater.operators.expressions.trees import Call


def matching(name: str) -> Maker:
    """Return a test whether a text has a pattern."""

    def make(node: Call, given: Sequence[Fitted]) -> Fitted:
        (pattern,) = node.options
        return computed(node, kernel(name, pc.MatchSubstringOptions(pattern)), given)

    return make


def like(node: Call, given: Sequence[Fitted]) -> Fitted:
    """Whether a whole text matches a pattern of SQL."""
    (pattern,) = node.options
    return computed(node, kernel("match_like", pc.MatchSubstringOptions(pattern)), given)


def trimmed(name: str) -> Maker:
    """Return a function that takes away spaces, and only those, at the ends of a text."""
    return lambda node, given: computed(node, kernel(name, pc.TrimOptions(" ")), given)


def substring(node: Call, given: Sequence[Fitted]) -> Fitted:
    """A part of a text; from its end if the start is below zero."""
    start, length = node.options
    begin = start - 1 if start > 0 else start
    end = begin + max(length, 0)
    options = pc.SliceOptions(begin, None if begin < 0 <= end else end)
    return computed(node, kernel("utf8_slice_codeunits", options), given)


def joined(node: Call, given: Sequence[Fitted]) -> Fitted:
    """Texts behind one another; null if one of them is."""
    return computed(node, lambda *values: pc.binary_join_element_wise(*_texts(values), ""), given)


def joined_with(node: Call, given: Sequence[Fitted]) -> Fitted:
    """Texts with a separator between them; nulls are left out."""
    (separator,) = node.options

    def compute(*values: Values) -> Values:
        first, *others = _texts(values)
        is_none = pc.is_null(pc.coalesce(first, *others))  # Arrow would leave the row out
        whole = pc.if_else(is_none, "", first)
        return pc.binary_join_element_wise(whole, *others, separator, null_handling="skip")

    return computed(node, compute, given)


def _texts(values: Sequence[Values]) -> list[Values]:
    return [value if pa.types.is_string(value.type) else value.cast(pa.string()) for value in values]


def replaced(node: Call, given: Sequence[Fitted]) -> Fitted:
    """A text with every place of a part replaced."""
    part, instead = node.options
    return computed(node, kernel("replace_substring", pc.ReplaceSubstringOptions(part, instead)), given)


def replaced_by_pattern(node: Call, given: Sequence[Fitted]) -> Fitted:
    """A text with every match of a regular expression replaced; `$1` is what its first group matched."""
    pattern, instead = node.options
    options = pc.ReplaceSubstringOptions(pattern, _groups(instead))
    return computed(node, kernel("replace_substring_regex", options), given)


def _groups(replacement: str) -> str:
    """Return a replacement with its groups as RE2 writes them."""
    return replacement.replace("\\", "\\\\").replace("$", "\\")


def padded(name: str) -> Maker:
    """Return a function that fills a text up to a length; a longer one is cut."""

    def make(node: Call, given: Sequence[Fitted]) -> Fitted:
        length, padding = node.options
        fill = kernel(name, pc.PadOptions(length, padding))
        cut = kernel("utf8_slice_codeunits", pc.SliceOptions(0, length))
        return computed(node, lambda values: cut(fill(values)), given)

    return make


def parted(node: Call, given: Sequence[Fitted]) -> Fitted:
    """The parts of a text between the matches of a regular expression."""
    (pattern,) = node.options
    return computed(node, kernel("split_pattern_regex", pc.SplitPatternOptions(pattern)), given)


def place_of(node: Call, given: Sequence[Fitted]) -> Fitted:
    """The place at which a text has a part; 0 if it has not."""
    (part,) = node.options

    def compute(values: Values) -> Values:
        before = pc.list_element(pc.split_pattern(values, part, max_splits=1), 0)
        found = pc.match_substring(values, part)
        return pc.if_else(found, pc.add(pc.utf8_length(before), pa.scalar(1, pa.int32())), pa.scalar(0, pa.int32()))

    return computed(node, compute, given)


def repeated(node: Call, given: Sequence[Fitted]) -> Fitted:
    """A text so many times behind itself."""
    (times,) = node.options
    return computed(node, lambda values: pc.binary_repeat(values, max(times, 0)), given)
