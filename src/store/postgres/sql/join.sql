-- Joins the cluster. $1 name, $2 program version, $3 schema version, $4 newest readable log format, $5 agents.
-- No row: the database may contain a newer log format.
WITH m AS (SELECT format_level FROM meta FOR SHARE)
INSERT INTO replica (name, program_version, schema_version, max_format_level, agents)
SELECT $1, $2, $3::int, $4::smallint, $5::text[] FROM m WHERE m.format_level <= $4::smallint
RETURNING id
