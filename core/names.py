"""Topic names, patterns, and the trie that matches one against many of the other.

Promises  `Trie.patterns_for` and `Trie.topics_for` agree with `matches`, the definition (I-MATCH); a look-up costs
          the levels of the name, not the number of patterns.
Never     iterates over names in hash order: children are visited sorted, results are sorted ids.
"""

from __future__ import annotations

from immutables import Map
from msgspec import Struct

from dovetail.core.ids import ordered

NAME_BYTES_MAX = 240
ONE = "*"
REST = "#"
HIDDEN = "~"
"""What the broker's own topics begin with: no pattern matches them, and no client can name them."""
HEALTH = f"{HIDDEN}health"
"""Where a deep look at the broker's health publishes and reads back."""
OURS = f"topics that begin with {HIDDEN!r} are the broker's own: choose another name"
"""What a client is told that names one."""
DEAD = "dlq"
DEAD_LETTERS = f".{DEAD}"
"""What the name of a topic's dead letters ends in: it may be that much longer, so that every topic has its own."""
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class BadName(ValueError):
    """A name or pattern that a peer got wrong; its text says why."""


def topic_name(text: str) -> str:
    """`text` as a topic's canonical name, levels joined by `.`; raises `BadName` with the reason."""
    name = _canonical(text, "topic name")
    for level in name.split("."):
        if not level:
            raise BadName(f"topic name {text!r} has an empty level: write the levels between single dots")
        if not _ALLOWED.issuperset(level):
            raise BadName(f"level {level!r} of topic name {text!r} may hold only letters, digits, '_' and '-'")
    return name


def pattern(text: str) -> str:
    """`text` as a canonical pattern: a topic name in which `*` is one level and a last `#` zero or more."""
    name = _canonical(text, "pattern")
    levels = name.split(".")
    for place, level in enumerate(levels):
        if not level:
            raise BadName(f"pattern {text!r} has an empty level: write the levels between single dots")
        if level == REST:
            if place != len(levels) - 1:
                raise BadName(f"pattern {text!r} has '#' before its end: '#' may only be the last level")
        elif level != ONE and not _ALLOWED.issuperset(level):
            raise BadName(
                f"level {level!r} of pattern {text!r} may hold only letters, digits, '_' and '-', "
                "or be '*' or '#' alone"
            )
    return name


def message_id(topic: str, partition: int, lane: int, offset: int) -> str:
    """The id of a message: its position; `lane` is -1 for a topic that has none."""
    return f"{topic}:{partition}:{offset}" if lane < 0 else f"{topic}:{partition}.{lane}:{offset}"


def plain_name(text: str, what: str) -> str:
    """`text` as the name of a group or member: 1 to 240 bytes that can be printed, no spaces at the ends."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= NAME_BYTES_MAX:
        raise BadName(f"the {what} has {size} bytes: 1 to {NAME_BYTES_MAX} are accepted")
    if not text.isprintable() or text != text.strip() or "/" in text:
        raise BadName(f"the {what} {text!r} may hold only printable characters, no '/', and no spaces at its ends")
    return text


def _canonical(text: str, what: str) -> str:
    name = text.replace("/", ".")
    if not name:
        raise BadName(f"the {what} is empty")
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > (most := NAME_BYTES_MAX + len(DEAD_LETTERS) * name.endswith(DEAD_LETTERS)):
        raise BadName(f"the {what} has {size} bytes, the most is {most}")
    return name


def is_hidden(name: str) -> bool:
    """Whether a topic is the broker's own."""
    return name.startswith(HIDDEN)


def is_plain(canonical: str) -> bool:
    """Whether a canonical pattern has no wildcard, so that it names one topic."""
    return ONE not in canonical and REST not in canonical


def is_dead_letter(topic: str) -> bool:
    """Whether a topic holds dead letters: its last level is `dlq`."""
    return topic == DEAD or topic.endswith(DEAD_LETTERS)


def dead_letters_of(topic: str) -> str | None:
    """The topic that keeps `topic`'s dead letters; None for one that has none of its own."""
    return None if is_dead_letter(topic) else topic + DEAD_LETTERS


def matches(canonical_pattern: str, topic: str) -> bool:
    """The definition of matching, level by level; the trie must agree with it."""
    wanted, levels = canonical_pattern.split("."), topic.split(".")
    if is_dead_letter(topic) and not is_plain(canonical_pattern) and wanted[-1] != DEAD:
        return False
    if wanted[-1] == REST:
        wanted = wanted[:-1]
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(w in (ONE, level) for w, level in zip(wanted, levels, strict=True))


class Trie(Struct, frozen=True):
    """A persistent trie from canonical names or patterns to sorted ids."""

    children_by_name: Map[str, Trie] = Map()
    ids: tuple[int, ...] = ()

    def insert(self, name: str, id: int) -> Trie:
        """The trie with `id` under `name`."""
        return _insert(self, name.split("."), 0, id)

    def remove(self, name: str, id: int) -> Trie:
        """The trie without `id` under `name`; empty branches are pruned."""
        return _remove(self, name.split("."), 0, id)

    def patterns_for(self, topic: str) -> list[int]:
        """Ids of the stored patterns that match `topic`, sorted, each once."""
        found: set[int] = set()
        _patterns(self, topic.split("."), 0, is_dead_letter(topic), found)
        return sorted(found)

    def topics_for(self, canonical_pattern: str) -> list[int]:
        """Ids of the stored topics that `canonical_pattern` matches, sorted."""
        levels = canonical_pattern.split(".")
        dead_too = is_plain(canonical_pattern) or levels[-1] == DEAD
        found: set[int] = set()
        _topics(self, levels, 0, dead_too, "", found)
        return sorted(found)


def _insert(node: Trie, levels: list[str], at: int, id: int) -> Trie:
    if at == len(levels):
        return Trie(node.children_by_name, tuple(sorted({*node.ids, id})))
    child = node.children_by_name.get(levels[at]) or Trie()
    return Trie(node.children_by_name.set(levels[at], _insert(child, levels, at + 1, id)), node.ids)


def _remove(node: Trie, levels: list[str], at: int, id: int) -> Trie:
    if at == len(levels):
        return Trie(node.children_by_name, tuple(other for other in node.ids if other != id))
    child = node.children_by_name.get(levels[at])
    if child is None:
        return node
    rest = _remove(child, levels, at + 1, id)
    if not rest.ids and not rest.children_by_name:
        return Trie(node.children_by_name.delete(levels[at]), node.ids)
    return Trie(node.children_by_name.set(levels[at], rest), node.ids)


def _patterns(node: Trie, levels: list[str], at: int, dead: bool, found: set[int]) -> None:
    children = node.children_by_name
    if not dead and (rest := children.get(REST)) is not None:
        found.update(rest.ids)
    if at == len(levels):
        found.update(node.ids)
        return
    last = at == len(levels) - 1
    if (child := children.get(levels[at])) is not None:
        _patterns(child, levels, at + 1, dead, found)
    # A dead-letter topic is matched through wildcards only by a pattern whose own last level is "dlq".
    if not (dead and last) and (child := children.get(ONE)) is not None:
        _patterns(child, levels, at + 1, dead, found)


def _topics(node: Trie, levels: list[str], at: int, dead_too: bool, level: str, found: set[int]) -> None:
    if at == len(levels):
        if dead_too or level != DEAD:
            found.update(node.ids)
        return
    wanted = levels[at]
    if wanted == REST:
        if dead_too or level != DEAD:
            found.update(node.ids)
        for name, child in ordered(node.children_by_name):
            _topics(child, levels, at, dead_too, name, found)
    elif wanted == ONE:
        for name, child in ordered(node.children_by_name):
            _topics(child, levels, at + 1, dead_too, name, found)
    elif (named := node.children_by_name.get(wanted)) is not None:
        _topics(named, levels, at + 1, dead_too, wanted, found)
