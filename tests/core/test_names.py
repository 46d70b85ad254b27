"""Names, patterns and tries: the trie agrees with the definition, and the definition with the specification."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core import names
from dovetail.core.names import BadName, Trie
from dovetail.spec import model

LEVEL = st.sampled_from(("a", "b", "dlq"))
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map(".".join)
PATTERN = st.tuples(
    st.lists(st.sampled_from(("a", "b", "dlq", "*")), max_size=3), st.sampled_from(("a", "dlq", "*", "#"))
).map(lambda parts: ".".join([*parts[0], parts[1]]))


@given(PATTERN, TOPIC)
def test_matching_is_what_the_specification_says(pattern: str, topic: str) -> None:
    assert names.matches(pattern, topic) == model.matches(pattern, topic)


@given(st.lists(PATTERN, max_size=12), TOPIC)
def test_a_trie_finds_the_patterns_that_match_a_topic(patterns: list[str], topic: str) -> None:
    trie = Trie()
    for number, pattern in enumerate(patterns):
        trie = trie.insert(pattern, number)
    assert trie.patterns_for(topic) == [n for n, each in enumerate(patterns) if names.matches(each, topic)]


@given(st.lists(TOPIC, max_size=12, unique=True), PATTERN)
def test_a_trie_finds_the_topics_that_a_pattern_matches(topics: list[str], pattern: str) -> None:
    trie = Trie()
    for number, topic in enumerate(topics):
        trie = trie.insert(topic, number)
    assert trie.topics_for(pattern) == [n for n, each in enumerate(topics) if names.matches(pattern, each)]


@given(st.lists(st.tuples(PATTERN, st.integers(0, 3)), max_size=12), st.data())
def test_what_is_removed_from_a_trie_leaves_no_trace(entries: list[tuple[str, int]], data: st.DataObject) -> None:
    kept = [entry for entry in entries if data.draw(st.booleans())]
    trie, expected = Trie(), Trie()
    for name, number in entries:
        trie = trie.insert(name, number)
    for name, number in entries:
        if (name, number) not in kept:
            trie = trie.remove(name, number)
    for name, number in kept:
        expected = expected.insert(name, number)
    assert trie == expected


def test_what_was_never_there_can_be_removed() -> None:
    trie = Trie().insert("a.b", 1)
    assert trie.remove("a.c", 1) == trie.remove("a.b", 2) == trie


@given(st.text(alphabet="aZ0_-./* é", max_size=8))
def test_a_topic_name_is_accepted_exactly_when_the_specification_says(text: str) -> None:
    if model.is_topic_name(text):
        assert names.topic_name(text) == text.replace("/", ".")
    else:
        with pytest.raises(BadName):
            names.topic_name(text)


@given(st.text(alphabet="ab./*#", max_size=7))
def test_a_pattern_is_accepted_exactly_when_the_specification_says(text: str) -> None:
    if model.is_pattern(text):
        assert names.pattern(text) == text.replace("/", ".")
    else:
        with pytest.raises(BadName):
            names.pattern(text)


@pytest.mark.parametrize("text", ["", " a", "a ", "a/b", "a\nb", "é" * 121, "\ud800"])
def test_a_group_or_member_is_not_called_just_anything(text: str) -> None:
    with pytest.raises(BadName):
        names.plain_name(text, "group name")


def test_a_name_of_240_bytes_is_the_longest() -> None:
    assert names.topic_name("a" * 240) == "a" * 240
    with pytest.raises(BadName, match="240"):
        names.topic_name("a" * 241)
    assert names.plain_name("a" * 240, "group name") == "a" * 240
    with pytest.raises(BadName, match="240"):
        names.plain_name("a" * 241, "group name")


def test_a_dead_letter_topic_has_none_of_its_own() -> None:
    assert names.dead_letters_of("orders") == "orders.dlq"
    assert names.dead_letters_of("orders.dlq") is None
    assert names.dead_letters_of("dlq") is None


def test_the_longest_name_has_dead_letters_too() -> None:
    longest = names.dead_letters_of("a" * 240)
    assert longest == "a" * 240 + ".dlq"
    assert names.topic_name(longest) == names.pattern("a" * 240 + "/dlq") == longest
    for text in ("a" * 241 + ".dlq", "a" * 241, "a" * 238 + "dlq"):
        with pytest.raises(BadName, match=r"24\d bytes"):
            names.topic_name(text)
