-- Creates a group of tasks. $1 replica, $2 shard, $3–$18 one array per column of `input`, $19–$22 log rows, by task id.
WITH me AS MATERIALIZED (
    SELECT FROM replica WHERE id = $1 AND removed IS NULL
), input AS MATERIALIZED (
    SELECT nextval('task_number_seq') AS number, t.* FROM unnest(
        $3::text[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bigint[], $8::smallint[], $9::bigint[], $10::bool[], $11::bool[],
        $12::bytea[], $13::bytea[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bytea[], $18::bytea[]
    ) AS t(id, scope, context, alias, position, state, status_time, ended, parked, key, digest, turn, created, oldest,
           webhook, webhook_body)
), replayed AS MATERIALIZED (
    SELECT i.number, k.digest = i.digest AS same
    FROM input i JOIN idempotency_key k ON k.scope = i.scope AND k.key = i.key
    WHERE i.key IS NOT NULL AND k.created >= i.oldest
), created AS (
    INSERT INTO task (number, id, scope, context, alias, position, state, status_time, ended, parked, holder)
    SELECT number, id, scope, context, alias, position, state, status_time, ended, parked,
        CASE WHEN ended OR parked THEN NULL ELSE $1::bigint END
    FROM input WHERE number NOT IN (SELECT number FROM replayed) AND EXISTS (SELECT FROM me)
    ON CONFLICT DO NOTHING
    RETURNING number, scope, state, ended
), logged AS (
    INSERT INTO batch (task, at, last, body)
    SELECT c.number, r.at, r.last, r.body
    FROM unnest($19::text[], $20::bigint[], $21::bigint[], $22::bytea[]) AS r(id, at, last, body)
        JOIN input i ON i.id = r.id JOIN created c ON c.number = i.number
), keyed AS (
    INSERT INTO idempotency_key (scope, key, digest, task, turn, created)
    SELECT i.scope, i.key, i.digest, i.number, i.turn, i.created FROM input i JOIN created c ON c.number = i.number
    WHERE i.key IS NOT NULL
), webhooks AS (
    INSERT INTO push_config (task, scope, id, body, position, holder)
    SELECT i.number, i.scope, i.webhook, i.webhook_body, 0, $1 FROM input i JOIN created c ON c.number = i.number
    WHERE i.webhook IS NOT NULL
), counted AS (
    INSERT INTO ended_task_counter (scope, state, shard, tasks)
    SELECT sums.scope, c.state, $2::bigint, count(*) FROM created c, LATERAL (VALUES (c.scope), (0)) AS sums(scope)
    WHERE c.ended GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (scope, state, shard) DO UPDATE SET tasks = ended_task_counter.tasks + excluded.tasks
)
SELECT i.id, c.number, r.same, EXISTS (SELECT FROM me) AS live
FROM input i LEFT JOIN created c ON c.number = i.number LEFT JOIN replayed r ON r.number = i.number
