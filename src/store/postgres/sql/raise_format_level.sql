-- Raises the log format to the newest that every replica reads that was live in the last minute.
UPDATE meta SET format_level = known.level
FROM (
    SELECT min(max_format_level) AS level FROM replica
    WHERE removed IS NULL OR removed > clock_timestamp() - interval '1 minute'
) known
WHERE known.level > meta.format_level
    AND NOT EXISTS (SELECT FROM replica WHERE removed IS NULL AND joined > clock_timestamp() - interval '1 minute')
