"""Which names a token's pattern reaches."""

import pytest

from dovetail.core.access import covers


@pytest.mark.parametrize(
    ("wide", "narrow", "is_covered"),
    [
        ("#", "#", True),
        ("#", "a.b", True),
        ("a.#", "a", True),
        ("a.#", "a.#", True),
        ("a.#", "a.*.c", True),
        ("a.#", "#", False),
        ("a.#", "*.b", False),
        ("a.*", "a.b", True),
        ("a.*", "a.*", True),
        ("a.*", "a.#", False),
        ("a.*", "a", False),
        ("a.b", "a.*", False),
        ("*.b", "a/b", True),
        ("a.*", "a.b.dlq", True),
        ("a.*", "a.*.dlq", True),
        ("a.b", "a.b.dlq", True),
        ("a.*", "a.dlq", False),
        ("*", "dlq", True),
        ("a.#", "a.dlq", True),
        ("*.dlq", "a.dlq", True),
        ("*.dlq", "a", False),
    ],
)
def test_a_pattern_is_covered_only_if_all_it_could_match_is(wide: str, narrow: str, is_covered: bool) -> None:
    assert covers(wide, narrow) is is_covered
