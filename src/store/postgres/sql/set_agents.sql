-- $1 replica, $2 agents.
UPDATE replica SET agents = $2::text[] WHERE id = $1
