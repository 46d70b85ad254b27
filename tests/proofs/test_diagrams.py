"""The pictures in `spec/` are those of the core's tables as they are now."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from dovetail.proofs.diagrams import MACHINES, SPEC, Machine, drawn

by_name = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)


@by_name
def test_the_picture_is_current(machine: Machine) -> None:
    assert (SPEC / f"{machine.name}.svg").read_text() == drawn(machine), "run `python -m dovetail.proofs.diagrams`"


@by_name
def test_every_state_and_event_of_the_table_is_in_the_picture(machine: Machine) -> None:
    root = ElementTree.fromstring(drawn(machine))
    texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    for before, event, after in machine.transitions:
        assert before in texts
        assert after in texts
        assert any(event.replace(" ", "") in text.replace(" ", "") for text in texts), event


@by_name
def test_the_picture_is_shown_beside_the_text_of_the_table(machine: Machine) -> None:
    assert any(f"({machine.name}.svg)" in page.read_text() for page in SPEC.glob("*.md"))


@by_name
def test_a_change_of_a_table_changes_the_picture(machine: Machine) -> None:
    changed = replace(machine, transitions=machine.transitions[1:])
    assert drawn(changed) != drawn(machine)
