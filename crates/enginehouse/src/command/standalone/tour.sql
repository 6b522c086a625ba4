-- A resource unit is the template of an engine: what runs, and how large it is.
CREATE RESOURCE UNIT IF NOT EXISTS small
    ENGINE_TYPE 'datafusion', DRIVER_CPU 1, DRIVER_MEMORY '512M', MAX_ENGINES 3;

-- The tour can be played again: back to the size that it begins with.
ALTER RESOURCE UNIT small DRIVER_MEMORY '512M';

-- A resource pool is where engines run, and which units it offers.
CREATE RESOURCE POOL IF NOT EXISTS local UNIT_LIST ('small');

-- A tenant is who runs engines: the pools that it may use, and its users.
CREATE TENANT IF NOT EXISTS demo RESOURCE_POOL_LIST ('local'), USER_LIST ('alice', 'bob');

-- Ask for an engine, and wait until it answers queries.
START ENGINE demo local small WAIT '2m';

SHOW ENGINES demo;

-- Ordinary SQL goes to an engine of the tenant. The data was made from seed {seed}.
CREATE EXTERNAL TABLE IF NOT EXISTS rides STORED AS PARQUET LOCATION '{samples}/rides/';

SELECT city, count(*) AS rides, sum(fare) AS fares, max(distance_km) AS farthest_km
FROM rides GROUP BY city ORDER BY fares DESC LIMIT 5;

-- What would happen if the engines got twice the memory? Nothing is changed by asking.
EXPLAIN ALTER RESOURCE UNIT small DRIVER_MEMORY '1G';

ALTER RESOURCE UNIT small DRIVER_MEMORY '1G';

-- The old engine stands in until the new one is ready: nobody waits.
SHOW ENGINES demo;

SELECT count(*) AS rides_served_meanwhile FROM rides;

-- The same again with WAIT: nothing changes any more, it answers when every engine is as it should be.
ALTER RESOURCE UNIT small DRIVER_MEMORY '1G' WAIT '2m';

SHOW ENGINES demo;

-- Who offers this unit, and who uses this pool?
SHOW RESOURCE UNIT small FOR POOL;

SHOW RESOURCE POOL local FOR TENANT;

DESCRIBE ENGINE local '{engine}';

-- It leaves the registry, finishes its statements, then goes.
STOP ENGINE local '{engine}' WITHIN '30s' WAIT '1m';

SHOW ALTERATIONS LIMIT 3;
