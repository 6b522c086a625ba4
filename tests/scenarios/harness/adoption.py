"""What an upgrade does to the ledger: the reservations of engines that were adopted, and when something was granted.

A trigger in the test's database (PostgreSQL) records each step of a reservation in order, also between two looks.
"""

import dataclasses

from harness.ledger import Ledger

TABLE = (
    "CREATE TABLE ledger_step (number BIGSERIAL PRIMARY KEY, id VARCHAR(64), pool VARCHAR(63), was VARCHAR(16), "
    "state VARCHAR(16))"
)
TRIGGERS = [
    "CREATE FUNCTION note_ledger_step() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE before VARCHAR(16); BEGIN "
    "IF TG_OP = 'UPDATE' THEN before := OLD.state; END IF; IF before IS DISTINCT FROM NEW.state THEN "
    "INSERT INTO ledger_step (id, pool, was, state) VALUES (NEW.id, NEW.pool, before, NEW.state); "
    "END IF; RETURN NULL; END $$",
    "CREATE TRIGGER ledger_steps AFTER INSERT OR UPDATE ON reservation FOR EACH ROW EXECUTE FUNCTION note_ledger_step()",
]


@dataclasses.dataclass
class Step:
    id: str
    pool: str
    was: str | None
    state: str

    is_adoption = property(lambda self: (self.was, self.state) == (None, "used"))
    is_grant = property(lambda self: self.state == "locked")


def record_steps(database):
    for statement in (TABLE, *TRIGGERS):
        database.rows(statement)


def steps(database):
    return [Step(*it) for it in database.rows("SELECT id, pool, was, state FROM ledger_step ORDER BY number")]


def adopted(cluster, names):
    """When each reservation became used; those of these engines are as adoption makes them. What they hold is for `at_rest`."""
    reservations = {it.id: it for it in Ledger(cluster.database).reservations}
    for name in names:
        it = reservations[name]
        assert (it.state, it.user, it.creator, it.nominal[0]) == ("used", "", "", 1000), name
    return {name: it.used_at_ms for name, it in reservations.items()}


def granted_after_adoption(database, adopted, granted):
    """Fails unless these engines were adopted and these reservations granted, no others, and each grant was after the adoption
    of all engines in its pool."""
    seen = steps(database)
    assert {it.id for it in seen if it.is_adoption} == set(adopted), seen
    assert {it.id for it in seen if it.is_grant} == set(granted), seen
    for number, step in enumerate(seen):
        if step.is_grant:
            late = [it.id for it in seen[number:] if it.is_adoption and it.pool == step.pool]
            assert not late, f"{step} was granted before {late} were adopted: {seen}"
