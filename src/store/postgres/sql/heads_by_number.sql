-- Position and holder of tasks whose append was refused. $1 numbers.
SELECT number, position, holder FROM task WHERE number = ANY($1::bigint[])
