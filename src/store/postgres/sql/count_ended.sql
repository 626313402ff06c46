SELECT coalesce(sum(tasks), 0)::bigint FROM ended_task_counter WHERE scope = 0
