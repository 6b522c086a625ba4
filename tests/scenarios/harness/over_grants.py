"""Records each grant above a limit: a trigger in the database sees every change of a scope, between two samples too.

A limit may be lowered below what is held; then nothing may be added. So a row is wrong when an amount rises and is above its
limit afterwards, or rises although the scope is closed. The parts of a pool change with the guarantees of its tenants; those
count only where the pool holds more than before.
"""

from harness.ledger_sampler import COMPONENTS, POOL

COLUMNS = ["kind", "name", "version", *(f"{it}_{component}" for component in COMPONENTS for it in ("held", "limit"))]
TABLE = "CREATE TABLE over_grant (kind BIGINT, name VARCHAR(255), " + ", ".join(f"{it} BIGINT" for it in COLUMNS[2:]) + ")"
INSERT = f"INSERT INTO over_grant VALUES ({', '.join(f'NEW.{it}' for it in COLUMNS)})"
SEEN = f"SELECT {', '.join(COLUMNS)} FROM over_grant"


def is_over():
    cases = []
    for component in COMPONENTS:
        rises = f"NEW.held_{component} > OLD.held_{component}"
        cases.append(f"{rises} AND (NEW.open = 0 OR NEW.held_{component} > NEW.limit_{component})")
        for part in ("shared", "unguaranteed"):
            held, limit = f"{part}_held_{component}", f"{part}_limit_{component}"
            cases.append(f"NEW.kind = {POOL} AND {rises} AND NEW.{held} > OLD.{held} AND NEW.{held} > NEW.{limit}")
    return " OR ".join(f"({it})" for it in cases)


TRIGGERS = {
    "postgres": [
        f"CREATE FUNCTION note_over_grant() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {INSERT}; RETURN NULL; END $$",
        f"CREATE TRIGGER over_grants AFTER UPDATE ON quota_scope FOR EACH ROW WHEN ({is_over()}) "
        "EXECUTE FUNCTION note_over_grant()",
    ],
    "mariadb": [
        f"CREATE TRIGGER over_grants AFTER UPDATE ON quota_scope FOR EACH ROW BEGIN IF {is_over()} THEN {INSERT}; END IF; END"
    ],
    "sqlite": [f"CREATE TRIGGER over_grants AFTER UPDATE ON quota_scope WHEN {is_over()} BEGIN {INSERT}; END"],
}


def record_over_grants(database):
    for statement in (TABLE, *TRIGGERS[database.kind]):
        database.rows(statement)


def no_over_grant(database):
    """Fails if anything was granted above a limit; and if one that is made here, and rolled back, is not recorded."""
    seen = database.rows(SEEN)
    assert not seen, "granted above a limit: " + "\n".join(str(dict(zip(COLUMNS, row, strict=True))) for row in seen)
    for made in ("limit_cpu = held_cpu, held_cpu = held_cpu + 1", "open = 0, held_memory = held_memory + 1"):
        one = f"UPDATE quota_scope SET {made} WHERE kind = {POOL}"
        _, found = database.tried(one, SEEN)
        assert found, f"not recorded: {one}"
