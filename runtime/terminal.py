"""What others wrote, as a terminal may have it.

Promises  nothing in it steers the terminal or hides what it says: what is not printable is written out.
Never     changes what can be printed.
"""

from __future__ import annotations


def plain(text: str, *, keep: str = "") -> str:
    """`text` with all that is not printable written out, but for the characters in `keep`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _written_out(each) for each in text)


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode()
