-- don't stop
SELECT 1