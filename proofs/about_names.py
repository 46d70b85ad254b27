"""Proofs about matching topics against patterns: by exhaustion up to a stated depth, against a second definition."""

from __future__ import annotations

from itertools import product

from dovetail.core import names
from dovetail.core.names import Trie
from dovetail.proofs.engine import Given
from dovetail.proofs.registry import Sabotage, proof

LEVELS = ("a", "b", "dlq")
TOPICS = [".".join(levels) for depth in (1, 2, 3) for levels in product(LEVELS, repeat=depth)]
PATTERNS = [
    ".".join((*levels, last))
    for depth in (0, 1, 2)
    for levels in product(("a", "*", "dlq"), repeat=depth)
    for last in ("a", "*", "#", "dlq")
]
DEPTH = f"bounded: all {len(PATTERNS)} patterns and {len(TOPICS)} topics of up to 3 levels over a, b, dlq, * and #"


def _matches(pattern: list[str], topic: list[str]) -> bool:
    """`*` is one level, a last `#` zero or more: level by level."""
    if not pattern or not topic:
        return pattern == topic or pattern == ["#"]
    head, *rest = pattern
    return pattern == ["#"] or (head in ("*", topic[0]) and _matches(rest, topic[1:]))


def _defined(pattern: str, topic: str) -> bool:
    """A wildcard matches dead letters only where the pattern's own last level says so."""
    wanted, levels = pattern.split("."), topic.split(".")
    hidden = levels[-1] == "dlq" and wanted[-1] != "dlq" and bool({"*", "#"} & set(wanted))
    return not hidden and _matches(wanted, levels)


@proof(
    "I-MATCH", about=names.matches, scope=DEPTH, sabotage=("len(levels) < len(wanted)", "len(levels) <= len(wanted)")
)
def matching_agrees_with_its_definition(given: Given) -> bool:
    """A pattern matches exactly the topics that its levels define, and hides dead letters from wildcards."""
    pattern, topic = given.choice("pattern", PATTERNS), given.choice("topic", TOPICS)
    return given.call(names.matches, pattern, topic) == _defined(pattern, topic)


@proof(
    "I-MATCH",
    about=Trie.patterns_for,
    through=(names._patterns,),
    scope=DEPTH,
    sabotage=Sabotage(names._patterns, "if not (dead and last)", "if not dead"),
)
def a_trie_finds_the_patterns_that_match(given: Given) -> bool:
    """Among two patterns a trie finds for a topic exactly those that match it."""
    pattern, topic = given.choice("pattern", PATTERNS), given.choice("topic", TOPICS)
    trie = Trie().insert(pattern, 1).insert("a.*.a", 2)
    wanted = [number for number, each in ((1, pattern), (2, "a.*.a")) if _defined(each, topic)]
    return given.call(trie.patterns_for, topic) == wanted


@proof(
    "I-MATCH",
    about=Trie.topics_for,
    through=(names._topics,),
    scope=DEPTH,
    sabotage=Sabotage(
        names._topics,
        "level != DEAD:\n            found.update(node.ids)\n        for",
        "True:\n            found.update(node.ids)\n        for",
    ),
)
def a_trie_finds_the_topics_that_match(given: Given) -> bool:
    """Among two topics a trie finds for a pattern exactly those that it matches."""
    pattern, topic = given.choice("pattern", PATTERNS), given.choice("topic", TOPICS)
    trie = Trie().insert(topic, 1).insert("a.b", 2)
    wanted = [number for number, each in ((1, topic), (2, "a.b")) if _defined(pattern, each)]
    return given.call(trie.topics_for, pattern) == wanted
