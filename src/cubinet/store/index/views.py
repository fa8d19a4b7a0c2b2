"""The views of the index: the interface for people and tools. `docs/reference/index-schema.md` describes each column.

A view that is here keeps its columns and their meaning as long as `VIEWS_VERSION` stays; columns may be added.
"""

from __future__ import annotations

__all__ = ["VIEWS", "VIEWS_VERSION"]

VIEWS_VERSION = 1

VIEWS: dict[str, str] = {
    "records": """SELECT r.fingerprint, r.action, r.family, r.name, r.target, r.kind, r.entries,
  (SELECT name || ' ' || version FROM raw_toolchains WHERE id = r.toolchain) AS toolchain,
  (SELECT identity FROM raw_toolchains WHERE id = r.toolchain) AS toolchain_identity,
  r.created, r.created_at, r.micros / 1000000.0 AS seconds, r.host, r.producer, r.size, r.total,
  (SELECT digest FROM raw_blobs WHERE id = r.main) AS digest,
  (SELECT digest FROM raw_sets WHERE id = r.observed) AS observations,
  (SELECT key FROM raw_variants WHERE id = r.variant) AS variant,
  r.kernels, r.registers, r.shared, r.local, r.spills,
  CASE r.local_only WHEN '' THEN 'shareable' ELSE 'local only' END AS state, r.local_only, r.uses, r.last_use
  FROM raw_records AS r""",
    "variants": """SELECT v.key AS variant, r.family, r.name, r.target, r.kind, r.entries, v.records, v.toolchains
  FROM raw_variants AS v JOIN raw_records AS r
  ON r.id = (SELECT id FROM raw_records WHERE variant = v.id LIMIT 1)""",
    "kernels": """SELECT r.fingerprint, k.position, k.name, k.symbol, k.registers, k.shared, k.local, k.constant,
  k.parameters, k.spills FROM raw_kernels AS k JOIN raw_records AS r ON r.id = k.record""",
    "blobs": "SELECT digest, size, names, mains FROM raw_blobs",
    "record_blobs": """SELECT r.fingerprint, n.role, b.digest, b.size FROM raw_record_blobs AS n
  JOIN raw_records AS r ON r.id = n.record JOIN raw_blobs AS b ON b.id = n.blob""",
    "toolchains": """SELECT t.name, t.version, t.identity, sum(n.records) AS records, sum(n.size) AS size,
  sum(n.micros) / 1000000.0 AS seconds FROM raw_toolchains AS t JOIN raw_totals AS n ON n.toolchain = t.id
  GROUP BY t.id""",
    "labels": """SELECT r.fingerprint, l.name, l.value FROM raw_labels AS l JOIN raw_records AS r ON r.id = l.record""",
    "observed": """SELECT r.fingerprint, o.label, o.read, o.present, o.absent, o.digest FROM raw_observed AS o
  JOIN raw_records AS r ON r.observed = o.observed""",
    "uses": "SELECT fingerprint, last AS last_use, count AS uses FROM raw_uses",
    "compiles": """SELECT at, action, family, name, target, toolchain, micros / 1000000.0 AS seconds, host, outcome,
  reason FROM raw_compiles""",
    "events": """SELECT day, layer, what, reason, count, micros / 1000000.0 AS seconds, bytes FROM raw_events""",
    "nondeterminism": "SELECT fingerprint, digest, count, first, last FROM raw_nondeterminism",
    "pins": "SELECT fingerprint, tag FROM raw_pins",
    "totals": """SELECT n.family, n.target, n.kind, t.name || ' ' || t.version AS toolchain,
  t.identity AS toolchain_identity, n.records, n.size, n.total, n.micros / 1000000.0 AS seconds, n.kernels,
  n.spilling, n.uses, n.saved / 1000000.0 AS saved FROM raw_totals AS n
  JOIN raw_toolchains AS t ON t.id = n.toolchain""",
    "summary": """SELECT coalesce(sum(records), 0) AS records, coalesce(sum(size), 0) AS size,
  coalesce(sum(micros), 0) / 1000000.0 AS seconds, coalesce(sum(kernels), 0) AS kernels,
  coalesce(sum(spilling), 0) AS spilling, coalesce(sum(uses), 0) AS uses, coalesce(sum(saved), 0) / 1000000.0 AS saved,
  (SELECT value FROM raw_counts WHERE name = 'blobs') AS blobs,
  (SELECT value FROM raw_counts WHERE name = 'blob_bytes') AS blob_bytes,
  (SELECT value FROM raw_counts WHERE name = 'since') AS since,
  (SELECT value FROM raw_counts WHERE name = 'views') AS views_version FROM raw_totals""",
}
"""Name → the query behind it."""
