"""The raw tables of the index, its secondary indices, its running totals and its views, as SQL.

Raw tables change from release to release; the views of `views.py` are what people may rely on. Seconds are
kept as whole microseconds, so that a sum does not depend on the order in which its terms came.
"""

from __future__ import annotations

__all__ = ["INDICES", "RECOUNT", "TABLES", "TRIGGERS"]

TABLES = """
CREATE TABLE raw_toolchains (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL, identity TEXT NOT NULL,
  UNIQUE (identity, name, version));
CREATE TABLE raw_sets (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE);
CREATE TABLE raw_observed (
  observed INTEGER NOT NULL, label TEXT NOT NULL, read INTEGER NOT NULL, present INTEGER NOT NULL,
  absent INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (observed, label)) WITHOUT ROWID;
CREATE TABLE raw_variants (
  id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, records INTEGER NOT NULL DEFAULT 0,
  toolchains INTEGER NOT NULL DEFAULT 0);
CREATE TABLE raw_blobs (
  id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, size INTEGER NOT NULL,
  names INTEGER NOT NULL DEFAULT 0, mains INTEGER NOT NULL DEFAULT 0);
CREATE TABLE raw_records (
  id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, action TEXT NOT NULL, variant INTEGER NOT NULL,
  family TEXT NOT NULL, name TEXT NOT NULL, target TEXT NOT NULL, kind TEXT NOT NULL, entries TEXT NOT NULL,
  toolchain INTEGER NOT NULL, created TEXT NOT NULL, created_at INTEGER, micros INTEGER NOT NULL,
  host TEXT NOT NULL, producer TEXT NOT NULL, observed INTEGER NOT NULL, main INTEGER,
  size INTEGER NOT NULL, total INTEGER NOT NULL, kernels INTEGER NOT NULL, registers INTEGER,
  shared INTEGER, local INTEGER, spills INTEGER, local_only TEXT NOT NULL,
  uses INTEGER NOT NULL DEFAULT 0, last_use INTEGER);
CREATE TABLE raw_record_blobs (
  record INTEGER NOT NULL, role TEXT NOT NULL, blob INTEGER NOT NULL, PRIMARY KEY (record, role)) WITHOUT ROWID;
CREATE TABLE raw_kernels (
  id INTEGER PRIMARY KEY, record INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL,
  symbol TEXT NOT NULL, registers INTEGER, shared INTEGER, local INTEGER, constant INTEGER, parameters INTEGER,
  spills INTEGER);
CREATE TABLE raw_labels (
  record INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (record, name)) WITHOUT ROWID;
CREATE TABLE raw_uses (
  fingerprint TEXT PRIMARY KEY, last INTEGER NOT NULL, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE raw_compiles (
  id INTEGER PRIMARY KEY, at INTEGER NOT NULL, action TEXT NOT NULL, family TEXT NOT NULL, name TEXT NOT NULL,
  target TEXT NOT NULL, toolchain TEXT NOT NULL, micros INTEGER NOT NULL, host TEXT NOT NULL,
  outcome TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE raw_events (
  day TEXT NOT NULL, layer TEXT NOT NULL, what TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL,
  micros INTEGER NOT NULL, bytes INTEGER NOT NULL, PRIMARY KEY (day, layer, what, reason)) WITHOUT ROWID;
CREATE TABLE raw_nondeterminism (
  fingerprint TEXT NOT NULL, digest TEXT NOT NULL, count INTEGER NOT NULL, first INTEGER NOT NULL,
  last INTEGER NOT NULL, PRIMARY KEY (fingerprint, digest)) WITHOUT ROWID;
CREATE TABLE raw_pins (fingerprint TEXT NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (fingerprint, tag)) WITHOUT ROWID;
CREATE TABLE raw_totals (
  family TEXT NOT NULL, target TEXT NOT NULL, kind TEXT NOT NULL, toolchain INTEGER NOT NULL,
  records INTEGER NOT NULL DEFAULT 0, size INTEGER NOT NULL DEFAULT 0, total INTEGER NOT NULL DEFAULT 0,
  micros INTEGER NOT NULL DEFAULT 0, kernels INTEGER NOT NULL DEFAULT 0, spilling INTEGER NOT NULL DEFAULT 0,
  uses INTEGER NOT NULL DEFAULT 0, saved INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (family, target, kind, toolchain)) WITHOUT ROWID;
CREATE TABLE raw_counts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO raw_counts VALUES ('blobs', 0), ('blob_bytes', 0), ('views', 1),
  ('since', CAST(strftime('%s', 'now') AS INTEGER));
CREATE TABLE raw_fans (fan TEXT PRIMARY KEY, stamp INTEGER NOT NULL) WITHOUT ROWID;
"""

INDICES = """
CREATE INDEX records_family_name ON raw_records (family, name);
CREATE INDEX records_family_target ON raw_records (family, target, created_at);
CREATE INDEX records_family_created ON raw_records (family, created_at);
CREATE INDEX records_family_size ON raw_records (family, size);
CREATE INDEX records_family_micros ON raw_records (family, micros);
CREATE INDEX records_family_uses ON raw_records (family, uses, last_use);
CREATE INDEX records_name ON raw_records (name);
CREATE INDEX records_target_created ON raw_records (target, created_at);
CREATE INDEX records_target_size ON raw_records (target, size);
CREATE INDEX records_target_micros ON raw_records (target, micros);
CREATE INDEX records_toolchain_created ON raw_records (toolchain, created_at);
CREATE INDEX records_toolchain_size ON raw_records (toolchain, size);
CREATE INDEX records_created ON raw_records (created_at);
CREATE INDEX records_size ON raw_records (size);
CREATE INDEX records_micros ON raw_records (micros);
CREATE INDEX records_registers ON raw_records (registers);
CREATE INDEX records_uses ON raw_records (uses, last_use);
CREATE INDEX records_last_use ON raw_records (last_use);
CREATE INDEX records_spills ON raw_records (spills);
CREATE INDEX records_action ON raw_records (action);
CREATE INDEX records_variant ON raw_records (variant, toolchain, created_at);
CREATE INDEX records_main ON raw_records (main);
CREATE INDEX records_observed ON raw_records (observed);
CREATE INDEX observed_label ON raw_observed (label);
CREATE INDEX record_blobs_blob ON raw_record_blobs (blob);
CREATE INDEX kernels_record ON raw_kernels (record);
CREATE INDEX kernels_name ON raw_kernels (substr(name, 1, 64));
CREATE INDEX kernels_symbol ON raw_kernels (substr(symbol, 1, 64));
CREATE INDEX labels_value ON raw_labels (name, value);
CREATE INDEX variants_several ON raw_variants (toolchains) WHERE toolchains > 1;
CREATE INDEX blobs_several ON raw_blobs ((mains - 1) * size) WHERE mains > 1;
CREATE INDEX blobs_size ON raw_blobs (size);
CREATE INDEX compiles_at ON raw_compiles (at);
CREATE INDEX compiles_micros ON raw_compiles (micros);
CREATE INDEX events_what ON raw_events (what, reason, layer, count, micros, bytes);
"""

# What the triggers keep, counted anew: for a file that was loaded without them.
RECOUNT = """
UPDATE raw_records SET uses = u.count, last_use = u.last FROM raw_uses AS u
  WHERE u.fingerprint = raw_records.fingerprint;
UPDATE raw_blobs SET names = (SELECT count(*) FROM raw_record_blobs WHERE blob = raw_blobs.id),
  mains = (SELECT count(*) FROM raw_records WHERE main = raw_blobs.id);
UPDATE raw_variants SET records = n.records, toolchains = n.toolchains FROM (
  SELECT variant, count(*) AS records, count(DISTINCT toolchain) AS toolchains FROM raw_records GROUP BY variant) AS n
  WHERE n.variant = raw_variants.id;
DELETE FROM raw_totals;
INSERT INTO raw_totals SELECT family, target, kind, toolchain, count(*), sum(size), sum(total), sum(micros),
  sum(kernels), sum(coalesce(spills, 0) > 0), sum(uses), sum(uses * micros) FROM raw_records
  GROUP BY family, target, kind, toolchain;
INSERT OR REPLACE INTO raw_counts SELECT 'blobs', count(*) FROM raw_blobs;
INSERT OR REPLACE INTO raw_counts SELECT 'blob_bytes', coalesce(sum(size), 0) FROM raw_blobs;
"""

_TOTALS = "family = {0}.family AND target = {0}.target AND kind = {0}.kind AND toolchain = {0}.toolchain"

TRIGGERS = f"""
CREATE TRIGGER record_added AFTER INSERT ON raw_records BEGIN
  INSERT INTO raw_totals (family, target, kind, toolchain) VALUES (new.family, new.target, new.kind, new.toolchain)
    ON CONFLICT DO NOTHING;
  UPDATE raw_totals SET records = records + 1, size = size + new.size, total = total + new.total,
    micros = micros + new.micros, kernels = kernels + new.kernels, spilling = spilling + (coalesce(new.spills, 0) > 0)
    WHERE {_TOTALS.format("new")};
  UPDATE raw_blobs SET mains = mains + 1 WHERE id = new.main;
  UPDATE raw_variants SET records = records + 1, toolchains = toolchains + NOT EXISTS (SELECT 1 FROM raw_records
    WHERE variant = new.variant AND toolchain = new.toolchain AND id <> new.id) WHERE id = new.variant;
  UPDATE raw_records SET uses = u.count, last_use = u.last FROM raw_uses AS u
    WHERE id = new.id AND u.fingerprint = new.fingerprint;
END;
CREATE TRIGGER record_used AFTER UPDATE OF uses ON raw_records BEGIN
  UPDATE raw_totals SET uses = uses + new.uses - old.uses, saved = saved + (new.uses - old.uses) * new.micros
    WHERE {_TOTALS.format("new")};
END;
CREATE TRIGGER record_removed AFTER DELETE ON raw_records BEGIN
  UPDATE raw_totals SET records = records - 1, size = size - old.size, total = total - old.total,
    micros = micros - old.micros, kernels = kernels - old.kernels, spilling = spilling - (coalesce(old.spills, 0) > 0),
    uses = uses - old.uses, saved = saved - old.uses * old.micros WHERE {_TOTALS.format("old")};
  DELETE FROM raw_totals WHERE records = 0 AND {_TOTALS.format("old")};
  UPDATE raw_blobs SET mains = mains - 1 WHERE id = old.main;
  DELETE FROM raw_record_blobs WHERE record = old.id;
  DELETE FROM raw_kernels WHERE record = old.id;
  DELETE FROM raw_labels WHERE record = old.id;
  UPDATE raw_variants SET records = records - 1, toolchains = toolchains - NOT EXISTS (SELECT 1 FROM raw_records
    WHERE variant = old.variant AND toolchain = old.toolchain) WHERE id = old.variant;
  DELETE FROM raw_variants WHERE id = old.variant AND records = 0;
  DELETE FROM raw_observed WHERE observed = old.observed AND NOT EXISTS (
    SELECT 1 FROM raw_records WHERE observed = old.observed);
  DELETE FROM raw_sets WHERE id = old.observed AND NOT EXISTS (SELECT 1 FROM raw_records WHERE observed = old.observed);
END;
CREATE TRIGGER blob_named AFTER INSERT ON raw_record_blobs BEGIN
  UPDATE raw_blobs SET names = names + 1 WHERE id = new.blob;
END;
CREATE TRIGGER blob_unnamed AFTER DELETE ON raw_record_blobs BEGIN
  UPDATE raw_blobs SET names = names - 1 WHERE id = old.blob;
  DELETE FROM raw_blobs WHERE id = old.blob AND names = 0;
END;
CREATE TRIGGER blob_added AFTER INSERT ON raw_blobs BEGIN
  UPDATE raw_counts SET value = value + 1 WHERE name = 'blobs';
  UPDATE raw_counts SET value = value + new.size WHERE name = 'blob_bytes';
END;
CREATE TRIGGER blob_removed AFTER DELETE ON raw_blobs BEGIN
  UPDATE raw_counts SET value = value - 1 WHERE name = 'blobs';
  UPDATE raw_counts SET value = value - old.size WHERE name = 'blob_bytes';
END;
CREATE TRIGGER use_added AFTER INSERT ON raw_uses BEGIN
  UPDATE raw_records SET uses = new.count, last_use = new.last WHERE fingerprint = new.fingerprint;
END;
CREATE TRIGGER use_counted AFTER UPDATE ON raw_uses BEGIN
  UPDATE raw_records SET uses = new.count, last_use = new.last WHERE fingerprint = new.fingerprint;
END;
CREATE TRIGGER use_forgotten AFTER DELETE ON raw_uses BEGIN
  UPDATE raw_records SET uses = 0, last_use = NULL WHERE fingerprint = old.fingerprint;
END;
"""  # noqa: S608 - constants, all of them
