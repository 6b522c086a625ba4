-- A resource unit is a template of engines: their type and their size.
CREATE RESOURCE UNIT IF NOT EXISTS small
    ENGINE_TYPE 'datafusion', DRIVER_CPU 1, DRIVER_MEMORY '512M', MAX_ENGINES 3;

-- Reset what the tour changes, in case it was run before.
ALTER RESOURCE UNIT small DRIVER_MEMORY '512M', IDLE_TIMEOUT DEFAULT;

-- A resource pool is where engines run; it lists the units that it offers.
CREATE RESOURCE POOL IF NOT EXISTS local UNIT_LIST ('small');

-- A tenant is a group of users; it lists the pools that it may use.
CREATE TENANT IF NOT EXISTS demo RESOURCE_POOL_LIST ('local'), USER_LIST ('alice', 'bob');

-- Ordinary SQL is sent to an engine of the tenant. None runs yet, so this statement waits while one is started for it.
-- The data was generated from seed {seed}.
CREATE EXTERNAL TABLE IF NOT EXISTS rides STORED AS PARQUET LOCATION '{samples}/rides/';

SELECT city, count(*) AS rides, sum(fare) AS fares, max(distance_km) AS farthest_km
FROM rides GROUP BY city ORDER BY fares DESC LIMIT 5;

-- The engine follows demand: it came with the session, and goes when it is idle. An engine of START ENGINE runs until STOP ENGINE.
SHOW ENGINES demo;

-- What would change if engines had twice the memory? EXPLAIN changes nothing.
EXPLAIN ALTER RESOURCE UNIT small DRIVER_MEMORY '1G';

ALTER RESOURCE UNIT small DRIVER_MEMORY '1G';

-- The old engine serves until the new one is ready: no query waits.
SHOW ENGINES demo;

SELECT count(*) AS rides_served_meanwhile FROM rides;

-- The same with WAIT: nothing is left to change, and it returns when every engine is ready.
ALTER RESOURCE UNIT small DRIVER_MEMORY '1G' WAIT '2m';

SHOW ENGINES demo;

-- Which pools offer this unit, and which tenants use this pool?
SHOW RESOURCE UNIT small FOR POOL;

SHOW RESOURCE POOL local FOR TENANT;

DESCRIBE ENGINE local '{engine}';

-- A quota guarantees a part of a pool to a tenant, and limits the tenant to it.
CREATE RESOURCE QUOTA IF NOT EXISTS demo_share TENANT demo, POOL local, GUARANTEE (CPU 1);

-- Reset the amount, in case the tour was run before.
ALTER RESOURCE QUOTA demo_share GUARANTEE (CPU 1);

-- {refused 53000}
-- The engine that runs holds all of it, and NOWAIT does not queue: the error has the numbers, and a statement that helps.
START ENGINE demo local small NOWAIT;

ALTER RESOURCE QUOTA demo_share GUARANTEE (CPU 2);

-- What does the tenant hold now, and what is left?
SHOW QUOTAS TENANT demo;

-- Idle engines are released after 5 minutes; here after a second. No engine restarts for it.
ALTER RESOURCE UNIT small IDLE_TIMEOUT '1s';

-- The session is closed, so its engine is idle. A new one shows that the engine has been released: it needs none itself.
-- {new session}
-- {until empty}
SHOW ENGINES demo;

-- Which engines came and went, and why?
SHOW ENGINE HISTORY demo LIMIT 2;

-- Without the quota the tenant is not limited.
DROP RESOURCE QUOTA demo_share;

SHOW ALTERATIONS LIMIT 3;
