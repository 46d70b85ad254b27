"""The report's tables, in SQL over a trace that `audit.prepare` has prepared.

Promises  each table says what its figures mean; percentiles are of whole microseconds rounded to three digits,
          the least value that so great a share is not above: anybody can compute the same from the trace.
Never     runs Python per row; the sum of the rows of a table is small, whatever the size of the trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from dovetail.reports.audit import make_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = 600
"""So many points of time a plot has at most: a broker's trace may be of days."""
KEPT = ("outages", "strikes", "wait_counts")
SLOT_US = 100_000
"""How finely it is told which fault was at work."""
AFTER_US = 1_000_000
"""So long after it is over, a fault is still held responsible."""
SERVED_US = 1_000_000
"""A publish that is answered within this time was served."""

VIEWS = {
    "windows": f"""
        SELECT run, seed, seq, time_us, fault, actor, time_us + greatest(latency_us, 0L) + {AFTER_US} AS until_us
        FROM trace WHERE kind = 'fault'""",
    # Which fault was at work in each tenth of a second: the one that struck last.
    "strikes": f"""
        SELECT *, explode(sequence(time_us DIV {SLOT_US}, until_us DIV {SLOT_US})) AS slot FROM windows""",
    "slots": """
        SELECT run, seed, slot, max_by(fault, seq) AS fault FROM strikes GROUP BY run, seed, slot""",
    "phases": """
        SELECT run, seed, CASE WHEN live THEN NULL ELSE coalesce(heal_us, 1L << 62) END AS heal_us, done_us
        FROM ends LEFT JOIN terms USING (run, seed)""",
    # From the first death since it was last up until it is up: a broker that dies again on its way up was down once.
    "outages": """
        SELECT run, seed, min(CASE WHEN kind = 'down' THEN time_us END) AS down_us,
               max(CASE WHEN kind = 'up' THEN time_us END) AS up_us,
               max(CASE WHEN kind = 'up' THEN latency_us END) AS took_us
        FROM (SELECT run, seed, kind, time_us, latency_us, count_if(kind = 'up') OVER
                     (PARTITION BY run, seed ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS lives
              FROM trace WHERE kind IN ('down', 'up'))
        GROUP BY run, seed, lives HAVING down_us IS NOT NULL""",
    "waits": f"""
        SELECT d.run, d.seed, d.topic, d.grp, coalesce(s.fault, 'none') AS fault,
               CASE WHEN h.heal_us IS NULL THEN 'live' WHEN d.time_us < h.heal_us THEN 'chaos' ELSE 'healed' END
               AS phase,
               d.time_us + greatest(d.way_us, 0L) - c.asked_us AS wait_us
        FROM (SELECT run, seed, topic, partition, lane, grp, at, min(time_us) AS time_us,
                     min_by(latency_us, seq) AS way_us
              FROM (SELECT run, seed, topic, partition, lane, `group` AS grp, explode(sequence(first, last)) AS at, seq,
                           time_us, latency_us FROM trace
                    WHERE kind = 'deliver' AND `group` <> '' AND `group` NOT LIKE '~%')
              GROUP BY run, seed, topic, partition, lane, grp, at) d
        JOIN (SELECT run, seed, topic, partition, lane, explode(sequence(first, last)) AS at,
                     time_us - latency_us AS asked_us
              FROM trace WHERE kind = 'confirm' AND mode <> 'idempotent') c
          ON c.run = d.run AND c.seed = d.seed AND c.topic = d.topic AND c.partition = d.partition AND c.lane = d.lane
         AND c.at = d.at
        LEFT JOIN phases h ON h.run = d.run AND h.seed = d.seed
        LEFT JOIN slots s ON s.run = d.run AND s.seed = d.seed AND s.slot = d.time_us DIV {SLOT_US}""",
    "wait_counts": """
        SELECT run, seed, topic, grp, fault, phase, (wait_us + unit DIV 2) DIV unit * unit AS wait_us,
               count(*) AS messages
        FROM (SELECT *, CAST(pow(10, greatest(0, length(CAST(wait_us AS STRING)) - 3)) AS BIGINT) AS unit
              FROM waits WHERE wait_us >= 0)
        GROUP BY 1, 2, 3, 4, 5, 6, 7""",
    "causes": """
        SELECT a.run, a.seed, a.seq, a.topic, a.grp, a.member, a.attempt, a.acked_seq IS NOT NULL AS acked,
               CASE WHEN max(k.from_seq) IS NOT NULL THEN 'a seek'
                    WHEN any_value(a.settled.of) = any_value(a.held.seq) AND any_value(a.settled.kind) = 'nack'
                    THEN 'nack'
                    WHEN max(l.seq) IS NOT NULL THEN 'the broker restarted'
                    WHEN max(r.seq) IS NOT NULL THEN concat('its holder: ', max_by(r.why, r.seq))
                    WHEN any_value(a.held_until_us) <= any_value(a.time_us) + 2000 THEN 'the lease ended'
                    WHEN any_value(a.settled.of) = any_value(a.held.seq) THEN any_value(a.settled.kind)
                    ELSE 'none was seen' END AS cause
        FROM again a
        LEFT JOIN lives l ON l.run = a.run AND l.seed = a.seed AND l.seq > a.held.seq AND l.seq < a.seq
        LEFT JOIN released r ON r.run = a.run AND r.seed = a.seed AND r.connection = a.held.connection
             AND r.grp IN (a.grp, '') AND r.lease IN (a.held.lease, -1) AND r.seq > a.held.seq AND r.seq < a.seq
        LEFT JOIN seeks k ON k.run = a.run AND k.seed = a.seed AND k.grp = a.grp AND k.topic = a.topic
             AND k.partition = a.partition AND k.from_seq < a.seq AND k.to_seq > a.held.seq
        WHERE a.grp NOT LIKE '~%'
        GROUP BY a.run, a.seed, a.seq, a.at, a.topic, a.grp, a.member, a.attempt, a.acked_seq""",
}


class Table(Struct, frozen=True):
    """A table of the report: what it says, and how it comes out of the trace."""

    name: str
    title: str
    about: str
    sql: str


def percentiles(of: str, value: str, weight: str, keys: str) -> str:
    """Percentiles over counted values: the least value that so great a share is not above."""
    ranks = ", ".join(
        f"min(CASE WHEN below >= {share} * total THEN {value} END) AS {name}"
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
    )
    return f"""
        SELECT {keys}, max(total) AS messages, {ranks}, max({value}) AS worst
        FROM (SELECT {keys}, {value}, sum({weight}) OVER (PARTITION BY {keys} ORDER BY {value}) AS below,
                     sum({weight}) OVER (PARTITION BY {keys}) AS total
              FROM (SELECT {keys}, {value}, sum({weight}) AS {weight} FROM {of} GROUP BY {keys}, {value}))
        GROUP BY {keys}"""


TABLES = (
    Table(
        "latency",
        "Delivery latency",
        "From the moment a message reached the broker until it reached a member of the group for the first time, in "
        "µs. `fault`: the fault that struck last, if it was at work or over for less than a second.",
        percentiles("wait_counts", "wait_us", "messages", "topic, grp, fault, phase")
        + " ORDER BY topic, grp, phase, messages DESC",
    ),
    Table(
        "latency_by_fault",
        "Delivery latency under each fault",
        "The same over all topics and groups.",
        percentiles("wait_counts", "wait_us", "messages", "fault, phase") + " ORDER BY phase, p99 DESC",
    ),
    Table(
        "redeliveries",
        "Redeliveries and their causes",
        "Messages that a group was sent again: why, how many of them it had acknowledged before (duplicates), and the "
        "most attempts that one had.",
        """SELECT topic, grp, cause, count(*) AS messages, count_if(acked) AS duplicates, max(attempt) AS attempts,
                  count(DISTINCT run, seed) AS seeds FROM causes GROUP BY topic, grp, cause ORDER BY messages DESC""",
    ),
    Table(
        "recovery",
        "Time to recover, to rebalance, to drain",
        "In ms: `down` until the broker answers again; `recover`: its own share of that; `rebalance`: from the first "
        "word of a generation to the last assignment of it; `drain`: from the end of faults until all is settled.",
        """SELECT what, count(*) AS times, round(avg(ms), 1) AS mean, round(percentile(ms, 0.5), 1) AS p50,
                  round(percentile(ms, 0.99), 1) AS p99, round(max(ms), 1) AS worst, count_if(ms IS NULL) AS never
           FROM (SELECT 'down' AS what, (up_us - down_us) / 1000 AS ms FROM outages
                 UNION ALL SELECT 'recover', took_us / 1000 FROM outages
                 UNION ALL SELECT 'drain', (done_us - heal_us) / 1000 FROM ends WHERE heal_us IS NOT NULL
                 UNION ALL SELECT 'rebalance', (max(time_us) - min(time_us)) / 1000 FROM trace
                           WHERE kind IN ('revoke', 'assign') AND generation >= 0
                           GROUP BY run, seed, `group`, generation)
           GROUP BY what ORDER BY what""",
    ),
    Table(
        "faults",
        "Availability and blast radius of each fault",
        "From each strike until a second after it is over: the share of that time in which the broker was up; "
        "publishes that came, and the share answered within a second; per strike, how many clients lost a connection "
        "and how many messages went out again.",
        f"""SELECT w.fault, count(*) AS strikes, count(DISTINCT w.run, w.seed) AS seeds,
                   round(1 - sum(coalesce(o.down_us, 0)) / sum(w.until_us - w.time_us), 4) AS up,
                   sum(coalesce(p.publishes, 0)) AS publishes,
                   round(sum(p.served) / sum(p.publishes), 4) AS served,
                   round(avg(coalesce(c.clients, 0)), 2) AS clients_cut,
                   max(coalesce(c.clients, 0)) AS clients_cut_most,
                   round(avg(coalesce(r.messages, 0)), 2) AS sent_again,
                   max(coalesce(r.messages, 0)) AS sent_again_most
            FROM windows w
            LEFT JOIN (SELECT w.run, w.seed, w.seq, sum(greatest(0, least(w.until_us, coalesce(o.up_us, w.until_us))
                              - greatest(w.time_us, o.down_us))) AS down_us
                       FROM windows w JOIN outages o ON o.run = w.run AND o.seed = w.seed AND o.down_us < w.until_us
                       AND coalesce(o.up_us, w.until_us) > w.time_us GROUP BY w.run, w.seed, w.seq) o
                      USING (run, seed, seq)
            LEFT JOIN (SELECT w.run, w.seed, w.seq, count(*) AS publishes, count_if(served) AS served
                       FROM strikes w JOIN (
                           SELECT run, seed, time_us, coalesce(took_us <= {SERVED_US}, false) AS served
                           FROM (SELECT run, seed, seq, time_us FROM trace WHERE kind = 'publish')
                           LEFT JOIN (SELECT run, seed, asked AS seq, min(latency_us) AS took_us FROM trace
                                      WHERE kind IN ('confirm', 'delayed') GROUP BY run, seed, asked)
                           USING (run, seed, seq)) p
                       ON p.run = w.run AND p.seed = w.seed AND p.time_us DIV {SLOT_US} = w.slot
                       AND p.time_us BETWEEN w.time_us AND w.until_us
                       GROUP BY w.run, w.seed, w.seq) p USING (run, seed, seq)
            LEFT JOIN (SELECT w.run, w.seed, w.seq, count(DISTINCT d.actor) AS clients FROM strikes w
                       JOIN trace d ON d.run = w.run AND d.seed = w.seed AND d.kind = 'disconnect' AND d.seq > w.seq
                       AND d.time_us DIV {SLOT_US} = w.slot AND d.time_us BETWEEN w.time_us AND w.until_us
                       GROUP BY w.run, w.seed, w.seq) c USING (run, seed, seq)
            LEFT JOIN (SELECT w.run, w.seed, w.seq, count(*) AS messages FROM strikes w
                       JOIN again a ON a.run = w.run AND a.seed = w.seed AND a.seq > w.seq
                       AND a.time_us DIV {SLOT_US} = w.slot AND a.time_us BETWEEN w.time_us AND w.until_us
                       GROUP BY w.run, w.seed, w.seq) r USING (run, seed, seq)
            GROUP BY w.fault ORDER BY strikes DESC""",
    ),
    Table(
        "fairness",
        "Fairness over members and lanes",
        "Messages sent to each member of a group in the runs together, and the evenness of a group's members in a run "
        "(Jain's index: 1 is even, 1/n is all to one), by lane.",
        """SELECT grp, lane, count(DISTINCT run, seed) AS seeds, max(members) AS members, sum(messages) AS messages,
                  round(avg(jain), 3) AS jain_mean, round(min(jain), 3) AS jain_worst
           FROM (SELECT run, seed, grp, lane, count(*) AS members, sum(messages) AS messages,
                        sum(messages) * sum(messages) / (count(*) * sum(messages * messages)) AS jain
                 FROM (SELECT run, seed, `group` AS grp, lane, member, CAST(sum(last - first + 1) AS DOUBLE) AS messages
                       FROM trace WHERE kind = 'deliver' AND `group` <> '' AND `group` NOT LIKE '~%'
                       GROUP BY run, seed, `group`, lane, member)
                 GROUP BY run, seed, grp, lane)
           GROUP BY grp, lane ORDER BY grp, lane""",
    ),
    Table(
        "throughput",
        "Throughput over simulated time",
        "Messages in a second, in all runs together; of a longer trace, the mean of as many seconds as make "
        f"{POINTS} points of it.",
        f"""SELECT time_us DIV (1000000 * step) * step AS second,
                   sum(CASE WHEN kind = 'publish' THEN last - first + 1 ELSE 0 END) DIV step AS published,
                   sum(CASE WHEN kind IN ('confirm', 'delayed') THEN last - first + 1 ELSE 0 END) DIV step AS confirmed,
                   sum(CASE WHEN kind = 'deliver' THEN last - first + 1 ELSE 0 END) DIV step AS delivered,
                   sum(CASE WHEN kind = 'ack' THEN last - first + 1 ELSE 0 END) DIV step AS acknowledged
            FROM trace CROSS JOIN (SELECT coalesce(max(time_us), 0) DIV {POINTS * 1_000_000} + 1 AS step FROM trace)
            WHERE kind IN ('publish', 'confirm', 'delayed', 'deliver', 'ack') GROUP BY step, 1 ORDER BY 1""",
    ),
    Table(
        "gaps",
        "Gaps in the trace",
        "Where a real broker's trace leaves out steps, because their writer did not keep up: the audit says nothing of "
        "what comes after the first.",
        """SELECT run, seed, min(seq) AS first_seq, count(*) AS gaps, sum(last) AS steps FROM trace
           WHERE kind = 'dropped' GROUP BY run, seed ORDER BY run, seed""",
    ),
    Table(
        "coverage",
        "Faults together",
        "How many runs had each pair of faults (a fault with itself: how many had it).",
        """SELECT a.fault, b.fault AS with, count(*) AS seeds
           FROM (SELECT DISTINCT run, seed, fault FROM windows) a
           JOIN (SELECT DISTINCT run, seed, fault FROM windows) b USING (run, seed)
           WHERE a.fault <= b.fault GROUP BY a.fault, b.fault ORDER BY a.fault, b.fault""",
    ),
)


def prepare(spark: SparkSession) -> None:
    """Make the views under the tables."""
    make_views(spark, VIEWS, KEPT)


PER_SEED = f"""
    SELECT t.run, t.seed, t.rows, t.seconds, t.delivered, t.published, w.p50 AS latency_p50_us,
           w.p99 AS latency_p99_us, coalesce(a.messages, 0) / t.delivered AS sent_again_share, o.down_ms,
           (e.done_us - e.heal_us) / 1000 AS drain_ms, t.delivered / t.seconds AS delivered_per_s
    FROM (SELECT run, seed, count(*) AS rows, max(time_us) / 1e6 AS seconds,
                 sum(CASE WHEN kind = 'deliver' THEN last - first + 1 END) AS delivered,
                 sum(CASE WHEN kind = 'publish' THEN last - first + 1 END) AS published
          FROM trace WHERE kind <> 'result' GROUP BY run, seed) t
    LEFT JOIN ({percentiles("wait_counts", "wait_us", "messages", "run, seed")}) w USING (run, seed)
    LEFT JOIN (SELECT run, seed, count(*) AS messages FROM again GROUP BY run, seed) a USING (run, seed)
    LEFT JOIN (SELECT run, seed, sum(up_us - down_us) / 1000 AS down_ms FROM outages GROUP BY run, seed) o
              USING (run, seed)
    LEFT JOIN ends e USING (run, seed)
    ORDER BY t.run, t.seed"""
"""One row for each run: what two campaigns are compared by."""
