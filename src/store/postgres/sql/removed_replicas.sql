-- Whether a replica was removed long enough ago for every commit of it to have ended.
SELECT EXISTS (SELECT FROM replica WHERE removed < clock_timestamp() - interval '1 minute')
