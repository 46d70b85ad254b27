"""The pictures of the state machines in `spec/`, drawn from the core's own tables.

    python -m dovetail.proofs.diagrams

Promises  every state of a table is a box and every change of state an arrow that names its events; the same tables give
          the same bytes; light and dark follow whoever looks.
Never     knows a transition: only where boxes stand and how arrows bend is said here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import hypot
from pathlib import Path
from textwrap import wrap

from msgspec import Struct

from dovetail.core.lifecycle import CONNECTION, MESSAGE, ConnectionState, MessageState
from dovetail.core.rebalance import TRANSITIONS, GroupState

SPEC = Path(__file__).resolve().parent.parent / "spec"

Transition = tuple[str, str, str]
"""A state, an event, and the state after it."""
Point = tuple[float, float]

BOX: Point = (132, 44)
LINE = 16
LETTER = 6.6
"""About as wide is a letter of an arrow's text."""
WIDTH = 30
"""Letters in a line of an arrow's text."""
BEND = 46.0

STYLE = """
svg { background: #ffffff }
text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: #1f2937; text-anchor: middle }
.name { font-weight: 600; font-size: 15px }
.note { fill: #6b7280 }
rect { fill: #eef2ff; stroke: #4f46e5; stroke-width: 1.5 }
.last { stroke-width: 4 }
.ground { fill: #ffffff; stroke: none }
path { fill: none; stroke: #6b7280; stroke-width: 1.4 }
marker path { fill: #6b7280; stroke: none }
circle { fill: #1f2937 }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117 }
  text { fill: #e5e7eb }
  .note { fill: #9ca3af }
  rect { fill: #1e1b4b; stroke: #a5b4fc }
  .ground { fill: #0d1117; stroke: none }
  path { stroke: #9ca3af }
  marker path { fill: #9ca3af }
  circle { fill: #e5e7eb }
}
"""


class Machine(Struct, frozen=True):
    """A table, and where its boxes stand; the first state is where it begins."""

    name: str
    title: str
    size: Point
    places: dict[str, Point]
    transitions: tuple[Transition, ...]
    ends: tuple[str, ...]
    note: str = ""
    bends: dict[tuple[str, str], float] = {}
    """How far an arrow leaves the straight way, to its right."""
    loops_below: tuple[str, ...] = ()
    """States whose arrows to themselves hang below the box."""


def _message_transitions() -> Iterator[Transition]:
    for event, following in MESSAGE.items():
        for state, after in zip(MessageState, following, strict=True):
            if state is not after:
                yield state, event, after


MACHINES = (
    Machine(
        "message",
        "What becomes of a message, for one group or session",
        (980, 600),
        {
            MessageState.PENDING: (110, 270),
            MessageState.LEASED: (470, 170),
            MessageState.RETRYING: (470, 360),
            MessageState.DYING: (870, 170),
            MessageState.SETTLED: (870, 420),
        },
        tuple(_message_transitions()),
        (MessageState.SETTLED,),
        "An event that is not drawn at a state leaves it as it is.",
        {
            (MessageState.DYING, MessageState.PENDING): 130,
            (MessageState.PENDING, MessageState.SETTLED): 100,
            (MessageState.SETTLED, MessageState.PENDING): -190,
            (MessageState.DYING, MessageState.SETTLED): 0,
            (MessageState.RETRYING, MessageState.PENDING): 0,
        },
    ),
    Machine(
        "group",
        "The life of a partitioned group",
        (1140, 470),
        {
            GroupState.EMPTY: (130, 210),
            GroupState.REBALANCING: (540, 210),
            GroupState.STABLE: (1010, 210),
            GroupState.DEAD: (130, 380),
        },
        tuple((before.value, event.value, after.value) for before, event, after in TRANSITIONS),
        (GroupState.DEAD,),
        "A shared group is empty or stable, and expires.",
        {(GroupState.STABLE, GroupState.EMPTY): 130},
        (GroupState.REBALANCING, GroupState.STABLE),
    ),
    Machine(
        "connection",
        "The life of a connection, as the broker sees it",
        (1080, 520),
        {
            ConnectionState.NEW: (140, 210),
            ConnectionState.OPEN: (540, 210),
            ConnectionState.LEAVING: (940, 210),
            ConnectionState.CLOSED: (540, 430),
        },
        tuple((before.value, event.value, after.value) for before, event, after in CONNECTION),
        (ConnectionState.CLOSED,),
        "A socket that is lost closes it from any state.",
        {(ConnectionState.NEW, ConnectionState.CLOSED): 60, (ConnectionState.LEAVING, ConnectionState.CLOSED): -60},
    ),
)


def drawn(machine: Machine) -> str:
    """The picture of a machine, as SVG."""
    width, height = machine.size
    arrows: dict[tuple[str, str], list[str]] = {}
    for before, event, after in machine.transitions:
        arrows.setdefault((before, after), []).append(event)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
        f"<title>{escape(machine.title)}</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z"/></marker></defs>',
        _text((width / 2, 30), [machine.title], "name"),
    ]
    labels: list[str] = []
    for (before, after), events in arrows.items():
        line, label = _loop(machine, before, events) if before == after else _arrow(machine, before, after, events)
        parts.append(line)
        labels.append(label)
    first = machine.places[next(iter(machine.places))]
    start = (first[0] - BOX[0] / 2 - 30, first[1])
    parts.append(f'<circle cx="{start[0]:g}" cy="{start[1]:g}" r="6"/>')
    parts.append(_path([start, (first[0] - BOX[0] / 2, first[1])]))
    for state, (x, y) in machine.places.items():
        kind = ' class="last"' if state in machine.ends else ""
        corner = f'x="{x - BOX[0] / 2:g}" y="{y - BOX[1] / 2:g}"'
        parts.append(f'<rect{kind} {corner} width="{BOX[0]:g}" height="{BOX[1]:g}" rx="10"/>')
        parts.append(_text((x, y + 5), [state], "name"))
    parts += labels
    if machine.note:
        parts.append(_text((width / 2, height - 14), [machine.note], "note"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _arrow(machine: Machine, before: str, after: str, events: Sequence[str]) -> tuple[str, str]:
    """A curve from box to box, and its events at its middle."""
    start, stop = machine.places[before], machine.places[after]
    two_way = any(each[0] == after and each[2] == before for each in machine.transitions)
    bend = machine.bends.get((before, after), BEND if two_way else 0.0)
    dx, dy = stop[0] - start[0], stop[1] - start[1]
    length = hypot(dx, dy)
    middle = ((start[0] + stop[0]) / 2, (start[1] + stop[1]) / 2)
    control = (middle[0] - dy / length * bend * 2, middle[1] + dx / length * bend * 2)
    begin, end = _border(start, control), _border(stop, control)
    top = ((begin[0] + 2 * control[0] + end[0]) / 4, (begin[1] + 2 * control[1] + end[1]) / 4)
    lines = _wrapped(events)
    return _path([begin, control, end]), _label((top[0], top[1] - LINE * (len(lines) - 1) / 2 + 4), lines)


def _wrapped(events: Sequence[str]) -> list[str]:
    """The events as lines of a bearable length; where there are several long ones each begins with a mark."""
    mark = "• " if len(events) > 1 and any(" " in event for event in events) else ""
    return [line for event in events for line in wrap(mark + event, WIDTH)]


def _loop(machine: Machine, state: str, events: Sequence[str]) -> tuple[str, str]:
    """A small bow above or below the box, and the events beyond it."""
    x, y = machine.places[state]
    down = 1 if state in machine.loops_below else -1
    edge = y + down * BOX[1] / 2
    bow = f"M{x - 22:g} {edge:g} C{x - 30:g} {edge + down * 30:g} {x + 30:g} {edge + down * 30:g} {x + 22:g} {edge:g}"
    above = edge - 28 - LINE * (len(_wrapped(events)) - 1)
    line = f'<path d="{bow}" marker-end="url(#head)"/>'
    return line, _label((x, edge + 38 if down > 0 else above), _wrapped(events))


def _border(center: Point, towards: Point) -> Point:
    """Where the line from a box's center leaves the box."""
    dx, dy = towards[0] - center[0], towards[1] - center[1]
    scale = min(BOX[0] / 2 / abs(dx) if dx else 1e9, BOX[1] / 2 / abs(dy) if dy else 1e9)
    return center[0] + dx * scale, center[1] + dy * scale


def _path(points: Sequence[Point]) -> str:
    first, *others = (f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{first} {"Q" if len(others) == 2 else "L"}{" ".join(others)}" marker-end="url(#head)"/>'


def _label(at: Point, lines: Sequence[str]) -> str:
    """Text over a ground of its own, so that no line of the picture shows between its words."""
    grounds = [
        f'<rect class="ground" x="{at[0] - width / 2:.1f}" y="{at[1] + LINE * (number - 1) + 4:.1f}" '
        f'width="{width:.1f}" height="{LINE}"/>'
        for number, width in enumerate(LETTER * len(line) + 8 for line in lines)
    ]
    return "\n".join([*grounds, _text(at, lines)])


def _text(at: Point, lines: Sequence[str], kind: str = "") -> str:
    rows = "".join(
        f'<tspan x="{at[0]:.1f}" y="{at[1] + LINE * number:.1f}">{escape(line)}</tspan>'
        for number, line in enumerate(lines)
    )
    return f'<text class="{kind}">{rows}</text>' if kind else f"<text>{rows}</text>"


def table(transitions: Sequence[Transition]) -> str:
    """The transitions as people read them in Markdown."""
    lines = [("state", "event", "next state"), ("---",) * 3, *transitions]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    for each in MACHINES:
        (SPEC / f"{each.name}.svg").write_text(drawn(each))
