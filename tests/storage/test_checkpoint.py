"""A checkpoint is the whole state, the same bytes for the same state, in small pieces, or it is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from enum import IntEnum
from hashlib import blake2b
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from dovetail.core.cursor import Cursor
from dovetail.core.journal_format import FormatError
from dovetail.core.records import TopicConfig
from dovetail.core.state import Durable, Group, Log, Topic
from dovetail.runtime.storage import checkpoint

NUMBERS = st.integers(0, 2**63 - 1)
NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=9)


@st.composite
def durables(draw: st.DrawFn) -> Durable:
    names = draw(st.lists(NAMES, unique=True, max_size=5))
    topics = {
        number: Topic(number, name, 1, 0, number, draw(st.builds(TopicConfig)), draw(st.booleans()), draw(NUMBERS))
        for number, name in enumerate(names, 1)
    }
    logs = {number: Log(number, number, 0, 0, draw(NUMBERS), draw(NUMBERS)) for number in topics}
    group_names = draw(st.lists(NAMES, unique=True, max_size=3))
    groups = {
        number: Group(number, name, "shared", "", tuple(draw(st.lists(NAMES, max_size=2))), 1, 2)
        for number, name in enumerate(group_names, 1)
    }
    runs = ((3, 4), (9, 9))
    cursors = {
        (group, log): Cursor(draw(NUMBERS), runs, ((5, 6, 2),), draw(NUMBERS)) for group in groups for log in logs
    }
    retired = {name: tuple(draw(st.lists(NUMBERS, max_size=2))) for name in draw(st.lists(NAMES, max_size=3))}
    return Durable(
        lsn=draw(NUMBERS),
        incarnation=draw(NUMBERS),
        wall_ms=draw(NUMBERS),
        next_topic=len(topics) + 1,
        next_log=len(logs) + 1,
        next_group=len(groups) + 1,
        topics=Map(topics),
        topics_by_name=Map({topic.name: topic.id for topic in topics.values()}),
        retired_by_name=Map(retired),
        logs=Map(logs),
        groups=Map(groups),
        groups_by_name=Map({group.name: group.id for group in groups.values()}),
        cursors=Map(cursors),
    )


@given(durables())
def test_a_state_comes_back_as_it_was(durable: Durable) -> None:
    assert checkpoint.decode(b"".join(checkpoint.encode(durable))) == durable


def test_every_field_of_the_durable_state_is_kept() -> None:
    """Whatever is added to `Durable` later is in the checkpoint without a change there."""
    for name, kind in get_type_hints(Durable).items():
        if kind is int:
            changed = Durable(**{name: 77})
        elif name in ("topics_by_name", "groups_by_name"):
            continue
        else:
            assert get_origin(kind) is Map, name
            key, value = (example(each) for each in get_args(kind))
            changed = Durable(**{name: Map({key: value})})
        data = b"".join(checkpoint.encode(changed))
        assert getattr(checkpoint.decode(data), name) == getattr(changed, name), name


def example(kind: Any) -> Any:
    """Some value of a type."""
    if kind in (int, str, bool):
        return kind(1)
    if kind in (None, type(None)):
        return None
    if get_origin(kind) is Map:
        key, value = get_args(kind)
        return Map({example(key): example(value)})
    if get_origin(kind) is tuple:
        inner = [each for each in get_args(kind) if each is not ...]
        return tuple(example(each) for each in inner)
    if issubclass(kind, IntEnum):
        return next(iter(kind))
    return kind(**{name: example(each) for name, each in get_type_hints(kind).items()})


def large() -> Durable:
    logs = {number: Log(number, 1, number, 0, 0, number) for number in range(1, 3000)}
    retired = {f"topic-{number}": (number,) for number in range(3000)}
    return Durable(logs=Map(logs), retired_by_name=Map(retired))


def test_equal_states_give_equal_bytes_whatever_the_hash_seed() -> None:
    code = (
        "from hashlib import sha256; from dovetail.runtime.storage import checkpoint;"
        "from tests.storage.test_checkpoint import large;"
        "print(sha256(b''.join(checkpoint.encode(large()))).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_a_large_state_comes_in_many_small_pieces() -> None:
    pieces = list(checkpoint.encode(large()))
    assert 20 < len(pieces) < 60
    assert max(map(len, pieces)) < 100_000


def test_no_cut_and_no_flip_is_taken_for_a_checkpoint() -> None:
    data = b"".join(checkpoint.encode(Durable(lsn=7, retired_by_name=Map({"a": (1,)}))))
    for size in range(len(data)):
        with pytest.raises(FormatError):
            checkpoint.decode(data[:size])
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            checkpoint.decode(bytes(damaged))


def test_a_checkpoint_that_ends_at_once_says_nothing() -> None:
    whole = next(iter(checkpoint.encode(Durable())))
    head = whole[: checkpoint._HEAD.size] + bytes(checkpoint._LENGTH.size)
    assert checkpoint.decode(head + blake2b(head, digest_size=checkpoint._HASH_BYTES).digest()) == Durable()
