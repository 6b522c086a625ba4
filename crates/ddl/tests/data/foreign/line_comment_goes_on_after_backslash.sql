-- the old one was \
SHOW ENGINES t_1
SELECT 1