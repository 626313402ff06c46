-- Locks tasks before their removal, in one order. The next statement of the transaction sees the rows of every append that
-- committed before. $1 numbers.
SELECT number FROM task WHERE number = ANY($1::bigint[]) ORDER BY number FOR UPDATE
