"""The verdict on a stream of statements: clients' responses, the rows of `alteration` and `request`, and the final catalog,
slots and issued names are compared. The rows are replayed (harness.stream_model) from an empty catalog by the numbers that they
drew, and each number must be accounted for."""

import json
import re

from harness.stream_model import Impossible, Replay, require

TOKEN = re.compile(r"COMMENT (?:= )?'([a-z0-9-]+)'")
DROPPED = re.compile(r"^DROP RESOURCE UNIT (\S+)")
ACKED, REFUSED, UNANSWERED = "acknowledged", "refused", "unanswered"


class Rows:
    def __init__(self, database):
        self.counter = int(database.rows("SELECT generation FROM catalog")[0][0])
        self.alterations = [
            {"id": id_, "statement": statement, "base": int(base), "generation": int(drawn)}
            | {"outcome": end, "progress": stage}
            for id_, statement, base, drawn, end, stage in database.rows(
                "SELECT id, statement, base_generation, generation, outcome, progress FROM alteration"
            )
        ]
        self.requests = [
            {"id": id_, "user": user, "statement": statement, "done_at": int(done), **json.loads(answer)}
            for id_, user, statement, answer, done in database.rows(
                "SELECT id, requested_by, statement, answer, done_at_ms FROM request ORDER BY done_at_ms"
            )
        ]
        self.names = {
            int(incarnation): (name, (tenant, pool, unit, int(ordinal)))
            for name, tenant, pool, unit, ordinal, incarnation in database.rows(
                "SELECT name, tenant, pool, unit, ordinal, incarnation FROM engine"
            )
        }
        self.objects = {}
        for kind, table in (("unit", "resource_unit"), ("pool", "resource_pool"), ("tenant", "tenant")):
            for name, spec, generation in database.rows(f"SELECT name, spec, generation FROM {table}"):
                self.objects[kind, name] = (json.loads(spec), int(generation))
        self.slots = {
            (tenant, pool, unit, int(ordinal)): (int(incarnation), origin)
            for tenant, pool, unit, ordinal, incarnation, origin in database.rows(
                "SELECT tenant, pool, unit, ordinal, incarnation, origin FROM slot"
            )
        }

    @staticmethod
    def slot(request):
        it = request["slot"]
        return it["tenant"], it["pool"], it["unit"], it["ordinal"]


def judge(statements, rows):
    wrong = []
    committed, requests = compare_answers(statements, rows, wrong)
    try:
        replay(statements, rows, committed, requests, wrong)
    except Impossible as error:
        wrong.append(f"the changes can't have come to be one after the other: {error}")
    assert not wrong, "the statements and the state differ:\n" + "\n".join(f"  {it}" for it in wrong)


def compare_answers(statements, rows, wrong):
    """Compares the clients' answers with the rows; answers (committed rows with their token, requests)."""
    committed = {}
    for row in rows.alterations:
        token = token_of(row["statement"])
        if token not in statements:
            wrong.append(f"no client sent {row['statement']}")
        elif row["outcome"] == "committed":
            if token in committed:
                wrong.append(f"{statements[token]} was committed twice: {committed[token]['id']} and {row['id']}")
            if row["progress"] not in ("converged", "superseded"):
                wrong.append(f"{statements[token]} is {row['progress']} at the end")
            committed[token] = row
    requests = {}
    for row in rows.requests:
        token = row["user"]
        if token not in statements or statements[token].change:
            wrong.append(f'no client sent {row["statement"]} as "{token}"')
        elif token in requests:
            wrong.append(f"{statements[token]} took effect twice: {requests[token]['id']} and {row['id']}")
        else:
            requests[token] = row
    for token, it in statements.items():
        row = committed.get(token) if it.change else requests.get(token)
        if it.outcome == ACKED and row is None:
            wrong.append(f"{it} was acknowledged and left nothing")
        if it.outcome == REFUSED and row is not None:
            wrong.append(f"{it} was refused and took effect: {row}")
        if it.outcome == ACKED and row and it.answer:
            written = row["id"] if it.change else row["engine"]
            answered = it.answer["alteration" if it.change else "engine"]
            if written != answered:
                wrong.append(f"{it} was answered {answered}, written is {written}")
    return committed, requests


def token_of(statement):
    found = DROPPED.match(statement)
    if found:
        return "drop-" + found[1].strip('"')
    found = TOKEN.search(statement)
    return found[1] if found else None


def replay(statements, rows, committed, requests, wrong):
    model = Replay()
    alterations = sorted(((row["generation"], token, row) for token, row in committed.items()), reverse=True)
    drawn = {row["incarnation"]: (token, row) for token, row in requests.items() if row["effect"] in ("started", "restarted")}
    # STOP, and RESTART of what is restarted or gone already, draw a number that is written nowhere: in their order.
    unwritten = [(row["user"], row) for row in reversed(rows.requests) if row["effect"] not in ("started", "restarted")]
    issued = {}
    incarnations = {name: incarnation for incarnation, (name, _) in rows.names.items()}
    while model.number < rows.counter:
        number = model.number + 1
        if number in drawn:
            token, row = drawn[number]
            slot = rows.slot(row)
            if row["effect"] == "started":
                model.start(slot, number)
            else:
                model.restart(slot, incarnations.get(statements[token].engine), number)
            issued[number] = slot
        elif number in rows.names:
            issued[number] = rows.names[number][1]
            model.renewed_by_master(rows.names[number][1], number)
        elif alterations and begins(statements, model, rows, alterations[-1]):
            generation, token, row = alterations.pop()
            followed = model.alter(statements[token].change, row["base"], generation)
            issued |= {incarnation: slot for slot, incarnation in followed.items()}
        else:
            require(
                unwritten,
                f"number {number} of {rows.counter} is unaccounted for; next is {alterations[-1] if alterations else None}",
            )
            token, row = unwritten.pop()
            engine = incarnations.get(statements[token].engine)
            if row["effect"] == "stopped":
                model.stop(rows.slot(row), engine)
            else:
                model.nothing(rows.slot(row), engine, row["effect"])
    if alterations or unwritten:
        wrong.append(f"took effect without having drawn a number: {alterations} {unwritten}")
    for incarnation in sorted(issued.keys() | rows.names.keys()):
        have, want = rows.names.get(incarnation, (None, None))[1], issued.get(incarnation)
        if have != want:
            wrong.append(f"the name of incarnation {incarnation} was issued for {have}, the statements make it {want}")
    compare_objects(model, rows, wrong)
    slots = {key: (slot.incarnation, slot.origin) for key, slot in model.slots.items()}
    for key in sorted(slots.keys() | rows.slots.keys()):
        if slots.get(key) != rows.slots.get(key):
            wrong.append(f"slot {key} is {rows.slots.get(key)}, the statements make it {slots.get(key)}")


def begins(statements, model, rows, alteration):
    """Whether the next number is the first one of this alteration: as many names follow as its change asks for."""
    generation, token, _ = alteration
    count = generation - model.number - 1
    if any(model.number + 2 + place not in rows.names for place in range(count)):
        return False
    try:
        _, _, renew, add = model.follows(statements[token].change)
    except Impossible:
        return False
    return len(renew) + len(add) == count


def compare_objects(model, rows, wrong):
    for key in sorted(model.catalog.objects.keys() | rows.objects.keys()):
        want = model.catalog.objects.get(key)
        have, generation = rows.objects.get(key, (None, None))
        if want is None or have is None:
            wrong.append(f"{key} is {'there' if have else 'not there'}, the statements make it {want}")
            continue
        for option, value in want.items():
            if have[option] != value:
                wrong.append(f"{key} has {option} {have[option]}, the statements make it {value}")
        if generation != model.catalog.generations[key]:
            wrong.append(f"{key} has generation {generation}, its last change drew {model.catalog.generations[key]}")
