"""What a benchmark prints for people.

Promises  plain text in columns, the same on a terminal and in a pipe; every ratio says of what.
Never     measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dovetail.runtime.bench.backlog import Backlog
from dovetail.runtime.bench.browse import Browsed
from dovetail.runtime.bench.disk_limit import IN_MEMORY_MS
from dovetail.runtime.bench.loads import Figures
from dovetail.runtime.bench.micro import Timed
from dovetail.runtime.bench.pauses import Pauses
from dovetail.runtime.bench.run import FlowResult, Profiled, PublishResult, Results

TOP = 30
"""Functions of a profile that are printed."""
DEAR_TIMES = 5
"""How much dearer new memory for files is where a machine is said to get it as it touches it."""
BUSY_SHARE = 0.25
"""The part of the cores that may have other work before figures are called doubtful."""


def report(results: Results) -> str:
    """All that one run has measured."""
    parts = [_about(results)]
    if results.publish:
        parts += [_publish(results.publish), _spread(results.publish)]
    if results.flows:
        parts.append(_flows(results.flows))
    parts += [_profile(each) for each in results.profiles]
    return "\n\n".join(part for part in parts if part)


def backlog(measured: Backlog) -> str:
    """What waiting messages cost."""
    empty, full = measured.empty_bytes / 1e6, measured.full_bytes / 1e6
    return (
        f"{measured.messages:,} messages of 1 KiB wait: {full:.1f} MB resident, {empty:.1f} MB when empty: "
        f"{measured.per_message:.1f} bytes a message"
    )


def pauses(measured: Pauses) -> str:
    """The longest pause of the loop in each checkpoint."""
    named = [("no checkpoint", measured.idle), *((f"checkpoint {n}", p) for n, p in enumerate(measured.checkpoints, 1))]
    rows = [[name, f"{each.clock_ms:.2f}", f"{each.processor_ms:.2f}", f"{each.took_ms:,.0f}"] for name, each in named]
    head = f"{measured.leases:,} leases held|longest pause, ms|its processor time, ms|in all, ms"
    note = "processor time: of the loop's thread alone, whatever else the machine does."
    return table(head.split("|"), rows) + "\n" + note


def _about(results: Results) -> str:
    syncs = ", ".join(f"{_size(each.size_bytes)} {each.p50_ms:.2f} ms" for each in results.syncs)
    client = "lean raw clients" if results.driver.value == "raw" else "the client library"
    lines = [
        f"Messages of 1 KiB, confirmed when synced; {client} on loopback; {results.cores} cores, "
        f"Python {results.python}; data in {results.directory}",
        f"write + fdatasync, median: {syncs}; processor time of writing a KiB to a new file "
        f"{results.pages.new_us:.2f} µs, again {results.pages.again_us:.2f} µs",
    ]
    if results.pages.new_us > results.pages.again_us * DEAR_TIMES:
        lines.append(
            "This machine gets memory as it touches it, and new memory is dear: the broker's logs and journal pay for\n"
            "that, the bare server, which writes over one small file, does not. Ratios are lower than the broker's own."
        )
    if results.busy > results.cores * BUSY_SHARE:
        lines.append(
            f"The machine was busy before this began (load average {results.busy:.1f}): rates and their ratios are\n"
            "not to be relied on, µs/msg is steadier. Measure again when nothing else runs."
        )
    if results.syncs[0].p50_ms < IN_MEMORY_MS:
        lines.append("That is no disk: choose a directory on one with --data, or the durable figures mean little.")
    return "\n".join(lines)


def _publish(results: Sequence[PublishResult]) -> str:
    head = (
        "durable publish, 10 publishers|partitions|msg/s|bare server|ratio|appending|ratio|bare loop|ratio|"
        "bare sockets|confirm p50|p95|p99|max ms|µs/msg|bare µs/msg"
    )
    rows = [
        [
            each.load.name,
            str(each.load.partitions),
            _rate(each.broker.per_second),
            _rate(each.bare.per_second),
            _ratio(each.broker.per_second, each.bare.per_second),
            _rate(each.appending.per_second),
            _ratio(each.broker.per_second, each.appending.per_second),
            _rate(each.disk_per_second),
            _ratio(each.broker.per_second, each.disk_per_second),
            _rate(each.sockets.per_second),
            *_percentiles(each.broker.confirm_ms),
            _cost(each.broker),
            _cost(each.bare),
        ]
        for each in results
    ]
    note = (
        "bare server: asyncio, group commit, no core in it, over one small file again and again; appending: the same\n"
        "to a file that grows, so that it keeps what it is sent; bare loop: all that is under way written and synced\n"
        "at once, again and again; bare sockets: answered unstored; µs/msg: processor time of the server process."
    )
    return table(head.split("|"), rows) + "\n" + note


def _spread(results: Sequence[PublishResult]) -> str:
    """What a message costs over many partitions, compared with one."""
    alone = {each.load.name: each for each in results if each.load.partitions == 1}
    rows = [
        [
            each.load.name,
            str(each.load.partitions),
            _ratio(each.broker.per_second, one.broker.per_second),
            _ratio(each.broker.server_us or 0, one.broker.server_us or 0),
        ]
        for each in results
        if each.load.partitions > 1 and (one := alone.get(each.load.name)) is not None
    ]
    return table(["compared with one partition", "partitions", "msg/s ratio", "µs/msg ratio"], rows) if rows else ""


def _flows(results: Sequence[FlowResult]) -> str:
    head = "publish → ack, group of two|msg/s|publish→deliver p50|p95|p99|max ms|confirm p50|p95|p99|max ms|µs/msg"
    rows = [
        [
            each.flow.load.name,
            _rate(each.figures.per_second),
            *_percentiles(each.figures.deliver_ms),
            *_percentiles(each.figures.confirm_ms),
            _cost(each.figures),
        ]
        for each in results
    ]
    return table(head.split("|"), rows)


def _profile(profiled: Profiled) -> str:
    profile = profiled.profile
    per_message_us = profile.processor_s * 1e6 / max(1, profiled.messages)
    threads = ", ".join(
        f"{thread} {seconds * 1e6 / max(1, profiled.messages):.2f}" for thread, seconds in profile.seconds.items()
    )
    title = (
        f"{profiled.name}: {per_message_us:.2f} µs of processor time per message ({threads}; "
        f"{profiled.messages} messages, {profile.samples} samples)"
    )
    rows = [
        [each.function, *_costs(each.own, per_message_us), *_costs(each.total, per_message_us)]
        for each in profile.shares[:TOP]
    ]
    return title + "\n" + table(["function", "own", "µs/msg", "with callees", "µs/msg"], rows)


def _costs(share: float, per_message_us: float) -> tuple[str, str]:
    return f"{share:.1%}", f"{share * per_message_us:.3f}"


def parts(results: Sequence[Timed], storage: Sequence[str]) -> str:
    """The parts of the broker, each beside its baseline, then what the storage engine says of itself."""
    head = "what|messages|ns each|messages/s|baseline|ns|times the baseline"
    rows = [
        [
            each.name,
            str(each.messages),
            f"{each.ns:,.0f}",
            _rate(each.messages * 1e9 / each.ns),
            each.baseline,
            f"{each.baseline_ns:,.0f}",
            f"{each.ns / each.baseline_ns:.1f}",
        ]
        for each in results
    ]
    return "\n".join([table(head.split("|"), rows), *([""] if storage else []), *storage])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be; the first and whatever is words to the left, numbers to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(line, widths, rows) for line in lines)


def _line(line: Sequence[str], widths: Sequence[int], rows: Sequence[Sequence[str]]) -> str:
    return "  ".join(_cells(line, widths, rows)).rstrip()


def _cells(line: Sequence[str], widths: Sequence[int], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for place, (cell, width) in enumerate(zip(line, widths, strict=True)):
        words = any(row[place][:1].isalpha() for row in rows)
        yield cell.ljust(width) if words else cell.rjust(width)


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}"


def _ratio(part: float, whole: float) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def _cost(figures: Figures) -> str:
    return "-" if figures.server_us is None else f"{figures.server_us:.2f}"


def _percentiles(found: dict[str, float]) -> list[str]:
    return [f"{found[name]:.2f}" if name in found else "-" for name in ("p50", "p95", "p99", "max")]


def _size(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"


def browsed(found: Browsed) -> str:
    """Publish latency with nobody browsing and with somebody who does."""
    lines = [
        f"a topic of {found.kept:,} messages, publishes of 1 KiB, one after the other",
        f"{'':<16}{'publishes':>10}{'p50 ms':>9}{'p99 ms':>9}{'worst ms':>10}{'pages of 1,000':>16}",
    ]
    for name, felt in (("alone", found.alone), ("beside a browse", found.browsing)):
        figures = f"{felt.publishes:>10,}{felt.p50_ms:>9.2f}{felt.p99_ms:>9.2f}{felt.worst_ms:>10.2f}{felt.pages:>16,}"
        lines.append(f"{name:<16}{figures}")
    return "\n".join(lines)
