"""An audit of runs from what their clients saw: written in SQL, from the trace alone, by other means than the checkers
in the simulation, which it must agree with on every seed.

Promises  each finding names its seed, its event and its offset; what a run's terms excuse (clocks that jump, seeks,
          connections that ended) is excused here for the same reasons; a seed on which audit and checkers do not agree
          is itself reported.
Never     looks at how a run ended before it has judged it, or runs Python per row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDING_US = 2_000
SLACK_US = 30_000
UNCERTAIN_US = 400_000
"""The tolerances of whoever sees only the wire: `sim/checkers/ground.py` says why each is what it is."""
ANSWERS_FOR = {
    "lost": ("I-LOST", "I-DENSE"),
    "invented": ("I-INVENTED", "I-CONTENT", "I-DELIVERY"),
    "duplicated": ("I-SETTLED", "I-ONCE"),
    "reordered": ("I-ORDER",),
    "held twice": ("I-LEASE",),
    "unfenced": ("I-FENCE",),
}
"""What each kind of finding is called where the invariants are listed (`spec/INVARIANTS.md`)."""
KEPT = ("story", "odd_places", "odd_values")
"""What is worked out once: several findings and tables are made of each."""
LOG = "run, seed, topic, partition, lane"
FINDING = "run, seed, kind, invariant, seq, time_us, topic, partition, lane, at, grp, member, story"

_VIEWS = {
    # What a run says of itself; a real broker's trace has several of these rows, and leaves out what it can't know.
    "setups": """
        SELECT run, seed, said.* FROM (SELECT run, seed, from_json(detail,
               'lease_ms BIGINT, honest_clock BOOLEAN, damage BOOLEAN, live BOOLEAN, relaxed ARRAY<STRING>,
                deleted ARRAY<STRING>, replayed ARRAY<STRING>') AS said FROM trace WHERE kind = 'setup')""",
    "terms": """
        SELECT run, seed, max(lease_ms) * 1000 AS lease_us, bool_and(honest_clock) AS honest, bool_or(damage) AS damage,
               max(live) AS live
        FROM setups GROUP BY run, seed""",
    # Topics that may lose what was confirmed, because they were set up so, were deleted, or the disk was repaired.
    "excused": """
        SELECT run, seed, explode(concat(coalesce(relaxed, array()), coalesce(deleted, array()))) AS topic FROM setups
        UNION SELECT run, seed, topic FROM trace WHERE kind = 'lost'""",
    "resent": """
        SELECT run, seed, explode(replayed) AS topic FROM setups""",
    "repaired": """
        SELECT run, seed, min(seq) AS seq FROM trace WHERE kind = 'repaired' GROUP BY run, seed""",
    "ends": """
        SELECT run, seed, max(CASE WHEN kind = 'up' THEN seq END) AS last_up_seq,
               max(CASE WHEN kind = 'done' THEN seq END) AS done_seq,
               max(CASE WHEN kind = 'heal' THEN time_us END) AS heal_us,
               max(CASE WHEN kind = 'done' THEN time_us END) AS done_us
        FROM trace WHERE kind IN ('up', 'done', 'heal') GROUP BY run, seed""",
    # A seek happened at some time between its first and its last sequence number.
    "seeks": """
        SELECT a.run, a.seed, a.`group` AS grp, a.topic, a.partition, a.seq AS from_seq,
               coalesce(min(e.seq), 1L << 62) AS to_seq, a.time_us AS from_us,
               coalesce(min(e.time_us), 1L << 62) AS to_us
        FROM trace a LEFT JOIN trace e ON e.run = a.run AND e.seed = a.seed AND e.seq > a.seq
             AND e.connection = a.connection AND e.kind IN ('seek', 'seek refused', 'disconnect')
             AND (e.kind = 'disconnect' OR (e.`group` = a.`group` AND e.topic = a.topic AND e.partition = a.partition))
        WHERE a.kind = 'seek asked'
        GROUP BY a.run, a.seed, a.`group`, a.topic, a.partition, a.seq, a.time_us""",
    # What ended the hold of a connection on what it was sent, other than settling it.
    "given_up": """
        SELECT r.run, r.seed, r.connection, r.`group` AS grp, r.topic, r.partition, min(j.seq) AS seq,
               min(j.time_us) AS time_us
        FROM trace r JOIN trace j ON j.run = r.run AND j.seed = r.seed AND j.connection = r.connection
             AND j.`group` = r.`group` AND j.seq > r.seq AND j.kind = 'join'
        WHERE r.kind = 'revoke' AND r.topic <> ''
        GROUP BY r.run, r.seed, r.connection, r.`group`, r.topic, r.partition, r.seq""",
    "released": """
        SELECT run, seed, connection, CASE WHEN kind = 'disconnect' THEN '' ELSE `group` END AS grp, '' AS topic,
               -1L AS partition, -1L AS lease, seq, time_us, kind AS why
        FROM trace WHERE kind IN ('disconnect', 'unsubscribe', 'leave')
        UNION ALL
        SELECT run, seed, connection, grp, topic, partition, -1L, seq, time_us, 'revoke' FROM given_up
        UNION ALL
        SELECT run, seed, connection, '', '', -1L, lease, seq, time_us, 'its end' FROM trace
        WHERE kind = 'ended' AND first < 0""",
    "disturbed": """
        SELECT run, seed, grp, time_us FROM released WHERE grp <> ''
        UNION
        SELECT d.run, d.seed, s.`group`, d.time_us FROM trace d JOIN trace s ON s.run = d.run AND s.seed = d.seed
             AND s.connection = d.connection AND s.kind = 'subscribe' WHERE d.kind = 'disconnect'
        UNION
        SELECT run, seed, '', time_us FROM trace WHERE kind = 'down'""",
    # Lives of the broker, and up to when what was answered in each was known to be durable.
    "lives": """
        SELECT run, seed, seq, generation FROM trace WHERE kind = 'down'""",
    "durable": """
        SELECT run, seed, seq, time_us - latency_us AS asked_us
        FROM trace LEFT ANTI JOIN excused USING (run, seed, topic)
        WHERE (kind = 'confirm' AND mode <> 'idempotent')
           OR (mode = 'durable' AND kind IN ('ack', 'nack', 'reject'))""",
    # Where a real broker's trace has a gap, nothing can be said of what comes after it.
    "gaps": """
        SELECT run, seed, min(seq) AS seq FROM trace WHERE kind = 'dropped' GROUP BY run, seed""",
    # Everything that happens to one offset of one group, in the order in which it reached the broker's socket.
    "touched": f"""
        SELECT t.run, t.seed, `group` AS grp, topic, partition, lane, explode(sequence(first, last)) AS at, first, seq,
               CASE WHEN asked < 0 OR kind LIKE 'extend%' THEN 2 * seq ELSE 2 * asked + 1 END AS ord,
               kind, time_us, time_us - greatest(latency_us, 0L) AS asked_us, connection, lease, member, attempt, mode,
               CASE WHEN kind <> 'deliver' THEN deadline_us
                    WHEN NOT coalesce(honest, true) THEN time_us - {UNCERTAIN_US} + lease_us
                    ELSE least(deadline_us, time_us + coalesce(lease_us, 1L << 50)) END AS until_us,
               CASE WHEN NOT coalesce(honest, true) THEN {UNCERTAIN_US} ELSE 0 END AS unsure_us, lease_us
        FROM trace t LEFT JOIN terms USING (run, seed)
        WHERE kind IN ('deliver', 'ack', 'nack', 'reject', 'extend', 'ack refused', 'nack refused', 'reject refused',
                       'extend refused', 'ended') AND topic <> '' AND `group` <> '' AND first >= 0""",
    "told": """
        SELECT *, held.connection = connection AND held.lease = lease AND kind <> 'deliver' AS own
        FROM (SELECT *, last_value(CASE WHEN kind = 'deliver' THEN
                    struct(seq, time_us, connection, lease, member, until_us, attempt) END, true) OVER before AS held
              FROM touched WINDOW before AS (PARTITION BY run, seed, grp, topic, partition, lane, at ORDER BY ord, seq
                                             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))""",
    # `of` says which delivery a settle was about: it counts for the next event only if that is the latest one. Of all
    # that happened to offsets, what follows is only what a finding or a table can turn on.
    "story": f"""
        SELECT * FROM (
            SELECT *, greatest(held.until_us, CASE WHEN longer.of = held.seq THEN longer.until_us END) AS held_until_us,
                   coalesce(asked.of = held.seq, false) OR held.lease = 0 AS is_over
            FROM (SELECT *,
                    max(CASE WHEN own AND kind NOT LIKE 'extend%' THEN struct(held.seq AS of, ord) END) OVER before
                        AS asked,
                    max(CASE WHEN own AND kind IN ('ack', 'nack', 'reject') THEN
                        struct(held.seq AS of, seq, time_us, asked_us, kind, mode) END) OVER before AS settled,
                    max(CASE WHEN own AND kind = 'extend' THEN struct(held.seq AS of, until_us) END) OVER before
                        AS longer
                  FROM told WINDOW before AS (PARTITION BY run, seed, grp, topic, partition, lane, at ORDER BY ord, seq
                                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)))
        WHERE CASE WHEN kind = 'deliver' THEN held IS NOT NULL OR at = first
                   WHEN kind IN ('ack', 'nack', 'reject', 'extend') THEN
                        NOT coalesce(own, false) OR is_over AND kind <> 'extend'
                        OR asked_us > held_until_us + {SLACK_US} + unsure_us
                   ELSE kind LIKE '% refused' END""",
    "again": """
        SELECT *, CASE WHEN held.lease = 0 THEN held.seq WHEN settled.of = held.seq AND settled.kind = 'ack'
                       THEN settled.seq END AS acked_seq,
               CASE WHEN held.lease = 0 THEN held.time_us WHEN settled.of = held.seq AND settled.kind = 'ack'
                    THEN settled.time_us END AS acked_us
        FROM story WHERE kind = 'deliver' AND held IS NOT NULL""",
    # What was held in a log, offset by offset: once an offset holds something, it holds that for ever.
    "shown": """
        SELECT run, seed, topic, partition, lane, first + place AS at, value, kind, seq, time_us
        FROM (SELECT run, seed, topic, partition, lane, first, kind, seq, time_us, posexplode(values) AS (place, value)
              FROM trace WHERE kind IN ('confirm', 'deliver', 'read'))""",
    # Whole numbers alone are added up over all of a trace; what is odd then is few, and is looked up again.
    "odd_places": f"""
        SELECT {LOG}, at, confirmed_seq IS NOT NULL AND NOT is_there AS is_lost, low <> high AS has_changed,
               confirmed_seq
        FROM (SELECT {LOG}, at, min(CASE WHEN kind = 'confirm' THEN seq END) AS confirmed_seq,
                     bool_or(kind = 'read' AND seq > coalesce(last_up_seq, -1)) OR max(done_seq) IS NULL AS is_there,
                     min(CASE WHEN value >= 0 THEN value END) AS low, max(CASE WHEN value >= 0 THEN value END) AS high
              FROM shown LEFT JOIN ends USING (run, seed) GROUP BY {LOG}, at)
        WHERE confirmed_seq IS NOT NULL AND NOT is_there OR low <> high""",
    "odd_values": """
        SELECT run, seed, topic, value, first_seq, delayed_seq,
               first_seq IS NOT NULL AND (published IS NULL OR published > first_seq) AS is_unknown,
               is_once AND (low <> high OR low_log <> high_log) AS is_twice,
               delayed_seq IS NOT NULL AND first_seq IS NULL AS is_overdue
        FROM (SELECT run, seed, topic, value, min(CASE WHEN kind = 'publish' THEN seq END) AS published,
                     bool_or(kind = 'publish' AND mode = 'idempotent') AS is_once,
                     min(CASE WHEN kind = 'delayed' THEN seq END) AS delayed_seq,
                     min(CASE WHEN is_shown THEN seq END) AS first_seq,
                     min(CASE WHEN is_shown THEN first + place END) AS low,
                     max(CASE WHEN is_shown THEN first + place END) AS high,
                     min(CASE WHEN is_shown THEN partition * 8 + lane END) AS low_log,
                     max(CASE WHEN is_shown THEN partition * 8 + lane END) AS high_log
              FROM (SELECT run, seed, topic, partition, lane, first, kind, mode, seq,
                           kind IN ('confirm', 'deliver', 'read') AS is_shown, posexplode(values) AS (place, value)
                    FROM trace WHERE kind IN ('publish', 'delayed', 'confirm', 'deliver', 'read')
                         AND topic NOT LIKE '%.dlq')
              WHERE value >= 0 GROUP BY run, seed, topic, value)
        WHERE is_once AND (low <> high OR low_log <> high_log) OR delayed_seq IS NOT NULL AND first_seq IS NULL
           OR first_seq IS NOT NULL AND (published IS NULL OR published > first_seq)""",
}

_FINDINGS = {
    "lost": """
        SELECT o.run, o.seed, 'lost', 'I-LOST', o.confirmed_seq, t.time_us, o.topic, o.partition, o.lane, o.at, '', '',
               'it was confirmed, and is not in the log at the end'
        FROM odd_places o JOIN trace t ON t.run = o.run AND t.seed = o.seed AND t.seq = o.confirmed_seq
        WHERE o.is_lost""",
    "short": f"""
        SELECT run, seed, 'lost', 'I-LOST', seq, time_us, topic, partition, lane, last + 1, '', '',
               concat('the log ends at ', last + 1, ', but offsets up to ', promised, ' were confirmed')
        FROM (SELECT *, max(CASE WHEN kind = 'confirm' THEN last END) OVER (PARTITION BY {LOG} ORDER BY ord, kind
                        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS promised
              FROM (SELECT *, CASE WHEN kind = 'confirm' THEN 2 * seq ELSE 2 * asked + 1 END AS ord FROM trace
                    WHERE kind = 'confirm' OR (kind = 'extent' AND asked >= 0)))
        WHERE kind = 'extent' AND last < promised""",
    "hole": f"""
        SELECT run, seed, 'lost', 'I-DENSE', seq, time_us, topic, partition, lane, before + 1, '', '',
               concat('offset ', before + 1, ' is missing before ', first)
        FROM (SELECT *, lag(last) OVER (PARTITION BY {LOG} ORDER BY seq) AS before FROM trace WHERE kind = 'read')
        WHERE first > before + 1""",
    "overdue": """
        SELECT o.run, o.seed, 'lost', 'I-LOST', o.delayed_seq, t.time_us, o.topic, t.partition, t.lane, -1L, '', '',
               'it was confirmed to come later, and never came'
        FROM odd_values o JOIN ends ON ends.run = o.run AND ends.seed = o.seed AND done_seq IS NOT NULL
        JOIN trace t ON t.run = o.run AND t.seed = o.seed AND t.seq = o.delayed_seq
        WHERE o.is_overdue""",
    "changed": f"""
        SELECT run, seed, 'invented', 'I-CONTENT', event.seq, event.time_us, topic, partition, lane, at, '', '',
               'the offset held other bytes before'
        FROM (SELECT {LOG}, at, greatest(min_by(struct(seq, time_us), struct(value, seq)),
                                         max_by(struct(seq, time_us), struct(value, -seq))) AS event
              FROM shown JOIN odd_places USING ({LOG}, at) WHERE value >= 0 AND has_changed GROUP BY {LOG}, at)""",
    "unknown": """
        SELECT o.run, o.seed, 'invented', 'I-INVENTED', o.first_seq, min(s.time_us), o.topic, min(s.partition),
               min(s.lane), min(s.at), '', '', 'nobody had published it'
        FROM odd_values o JOIN shown s ON s.run = o.run AND s.seed = o.seed AND s.topic = o.topic
             AND s.seq = o.first_seq AND s.value = o.value
        WHERE o.is_unknown GROUP BY o.run, o.seed, o.first_seq, o.topic, o.value""",
    "twice": """
        SELECT run, seed, 'duplicated', 'I-ONCE', event.seq, event.time_us, topic, event.partition, event.lane,
               event.at, '', '', 'an idempotent producer sent it once, and it is in the topic twice'
        FROM (SELECT run, seed, topic, value,
                     greatest(min_by(struct(seq, time_us, partition, lane, at), struct(partition, lane, at, seq)),
                              max_by(struct(seq, time_us, partition, lane, at), struct(partition, lane, at, -seq)))
                     AS event
              FROM shown JOIN odd_values USING (run, seed, topic, value) WHERE is_twice
              GROUP BY run, seed, topic, value)
        LEFT ANTI JOIN resent USING (run, seed, topic)""",
    "empty": """
        SELECT run, seed, 'invented', 'I-DELIVERY', seq, time_us, topic, partition, lane,
               first + greatest(array_position(values, -1L), 1) - 1, `group`, member,
               CASE WHEN `group` = '' THEN 'it was sent for a subscription that there is not'
                    ELSE 'it was leased, and its bytes were not sent' END
        FROM trace WHERE kind = 'deliver' AND (`group` = '' OR array_contains(values, -1L))""",
    # What was acknowledged comes again only if that was not durable when the broker died, or if a seek asked for it.
    "settled": """
        SELECT a.run, a.seed, 'duplicated', 'I-SETTLED', a.seq, a.time_us, a.topic, a.partition, a.lane, a.at, a.grp,
               a.member, concat('it goes to ', a.member, ' although ', a.held.member, '\\'s acknowledgment (event ',
                                a.acked_seq, ') was ', CASE WHEN died.seq IS NULL THEN 'accepted' ELSE
                                'durable before the broker died' END)
        FROM (SELECT * FROM again WHERE acked_seq IS NOT NULL) a
        LEFT ANTI JOIN seeks k ON k.run = a.run AND k.seed = a.seed AND k.grp = a.grp AND k.topic = a.topic
             AND k.partition = a.partition AND k.from_seq < a.seq AND k.to_us >= a.acked_us
        LEFT JOIN (SELECT a.run, a.seed, a.seq, a.at, min(l.seq) AS died_seq FROM again a JOIN lives l
                   ON l.run = a.run AND l.seed = a.seed AND l.seq > a.acked_seq AND l.seq < a.seq
                   WHERE a.acked_seq IS NOT NULL GROUP BY a.run, a.seed, a.seq, a.at) first_death
             ON first_death.run = a.run AND first_death.seed = a.seed AND first_death.seq = a.seq
             AND first_death.at = a.at
        LEFT JOIN lives died ON died.run = a.run AND died.seed = a.seed AND died.seq = first_death.died_seq
        WHERE died.seq IS NULL OR a.settled.mode = 'durable' AND a.held.lease <> 0
           OR EXISTS (SELECT 1 FROM durable d WHERE d.run = a.run AND d.seed = a.seed AND d.seq < died.seq
                      AND d.seq > a.acked_seq AND d.asked_us > a.acked_us)""",
    "reordered": f"""
        SELECT f.run, f.seed, 'reordered', 'I-ORDER', f.seq, f.time_us, f.topic, f.partition, f.lane, f.at, f.grp,
               f.member, concat('it goes out for the first time after ', f.before, ' did')
        FROM (SELECT *, max(at) OVER earlier AS before, lag(time_us) OVER
                     (PARTITION BY {LOG}, grp, connection ORDER BY seq, at) AS since_us
              FROM story WHERE kind = 'deliver' AND held IS NULL
              WINDOW earlier AS (PARTITION BY {LOG}, grp, connection ORDER BY seq, at
                                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) f
        LEFT ANTI JOIN seeks k ON k.run = f.run AND k.seed = f.seed AND k.grp = f.grp AND k.topic = f.topic
             AND k.partition = f.partition AND k.from_seq < f.seq AND k.to_us >= f.since_us
        LEFT ANTI JOIN disturbed d ON d.run = f.run AND d.seed = f.seed AND d.grp IN (f.grp, '')
             AND d.time_us BETWEEN f.since_us AND f.time_us
        WHERE f.at <= f.before AND f.time_us - f.since_us < coalesce(f.lease_us, 30000000) - {SLACK_US}""",
    "held": f"""
        SELECT a.run, a.seed, 'held twice', 'I-LEASE', a.seq, a.time_us, a.topic, a.partition, a.lane, a.at, a.grp,
               a.member, concat('it goes to ', a.member, ' while ', a.held.member, ' holds it for another ',
                                (a.held_until_us - a.time_us) DIV 1000, ' ms (event ', a.held.seq, ')')
        FROM (SELECT * FROM again WHERE NOT is_over AND held_until_us > time_us + {ROUNDING_US}) a
        LEFT ANTI JOIN released r ON r.run = a.run AND r.seed = a.seed AND r.connection = a.held.connection
             AND r.grp IN (a.grp, '') AND r.topic IN (a.topic, '') AND r.partition IN (a.partition, -1)
             AND r.lease IN (a.held.lease, -1) AND r.seq > a.held.seq AND r.seq < a.seq
        LEFT ANTI JOIN seeks k ON k.run = a.run AND k.seed = a.seed AND k.grp = a.grp AND k.topic = a.topic
             AND k.partition = a.partition AND k.from_seq < a.seq AND k.to_seq > a.held.seq""",
    "fenced": """
        SELECT s.run, s.seed, 'unfenced', 'I-FENCE', s.seq, s.time_us, s.topic, s.partition, s.lane, s.at, s.grp,
               s.member, concat(s.kind, ' was accepted ', CASE WHEN NOT coalesce(s.own, false)
                    THEN 'although the lease had passed to somebody else'
                    WHEN s.is_over THEN 'although it had been settled before' ELSE 'after the deadline' END)
        FROM (SELECT * FROM story WHERE kind IN ('ack', 'nack', 'reject', 'extend')) s
        LEFT ANTI JOIN seeks k ON k.run = s.run AND k.seed = s.seed AND k.grp = s.grp AND k.topic = s.topic
             AND k.partition = s.partition AND k.from_seq < s.seq AND k.to_us >= coalesce(s.held.time_us, 0)
             - coalesce(s.lease_us, 0)""",
    "stranger": """
        SELECT run, seed, 'unfenced', 'I-FENCE', seq, time_us, topic, partition, lane, first, `group`, member,
               concat(kind, ' of a lease that was never given was accepted')
        FROM trace WHERE kind IN ('ack', 'nack', 'reject', 'extend') AND topic = ''""",
    "refused": f"""
        SELECT s.run, s.seed, 'unfenced', 'I-FENCE', s.seq, min(s.time_us), s.topic, s.partition, s.lane, min(s.at),
               s.grp, min(s.member), 'it was refused although the lease is live'
        FROM (SELECT * FROM story WHERE kind LIKE '% refused') s
        LEFT ANTI JOIN seeks k ON k.run = s.run AND k.seed = s.seed AND k.grp = s.grp AND k.topic = s.topic
             AND k.partition = s.partition AND k.from_seq < s.seq AND k.to_us >= coalesce(s.held.time_us, 0)
             - coalesce(s.lease_us, 0)
        LEFT ANTI JOIN released r ON r.run = s.run AND r.seed = s.seed AND r.connection = s.connection
             AND r.grp IN (s.grp, '') AND r.topic IN (s.topic, '') AND r.partition IN (s.partition, -1)
             AND r.lease IN (s.held.lease, -1) AND r.seq > s.held.seq AND r.seq < s.seq
        GROUP BY s.run, s.seed, s.seq, s.topic, s.partition, s.lane, s.grp
        HAVING bool_and(coalesce(s.own, false) AND NOT s.is_over AND s.held_until_us > s.time_us + {ROUNDING_US})""",
}


def prepare(spark: SparkSession, trace: DataFrame) -> None:
    """Make the views that judge, and that tables are made of, over a trace."""
    trace.createOrReplaceTempView("trace")
    make_views(spark, _VIEWS, KEPT)


def make_views(spark: SparkSession, views: Mapping[str, str], kept: Sequence[str]) -> None:
    """Name queries, so that others can be made of them. What is `kept` is worked out once and lies on disk then, until
    its name is given to another."""
    from pyspark import StorageLevel

    for name, text in views.items():
        spark.catalog.dropTempView(name)
        spark.sql(text).createOrReplaceTempView(name)
        if name in kept:
            spark.catalog.cacheTable(name, StorageLevel.DISK_ONLY)


def findings(spark: SparkSession, per_seed: int | None = None) -> DataFrame:
    """What is wrong in the trace that was prepared, each with its seed and event. With `per_seed`, of each kind only
    so many of a run: `place` counts them, `total` says how many there are."""
    if per_seed is not None:
        _everything(spark).createOrReplaceTempView("found")
        return spark.sql(f"""
            SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY run, seed, kind ORDER BY seq, at) AS place,
                                  count(*) OVER (PARTITION BY run, seed, kind) AS total FROM found)
            WHERE place <= {per_seed}""")
    return _everything(spark)


def _everything(spark: SparkSession) -> DataFrame:
    columns = ", ".join(FINDING.split(", "))
    parts = [f"SELECT * FROM ({text}) AS found({columns})" for text in _FINDINGS.values()]
    return spark.sql(f"""
        SELECT * FROM ({" UNION ALL ".join(parts)}) f
        LEFT ANTI JOIN gaps g ON g.run = f.run AND g.seed = f.seed AND g.seq < f.seq
        LEFT ANTI JOIN excused e ON e.run = f.run AND e.seed = f.seed AND e.topic = replace(f.topic, '.dlq', '')
        LEFT ANTI JOIN repaired r ON r.run = f.run AND r.seed = f.seed AND f.kind IN ('lost', 'duplicated')""")
