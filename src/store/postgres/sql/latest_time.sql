-- Later status time of the task that was created last and the task that ended last.
SELECT greatest(
    (SELECT max(status_time) FROM task WHERE ended),
    (SELECT status_time FROM task ORDER BY number DESC LIMIT 1))
