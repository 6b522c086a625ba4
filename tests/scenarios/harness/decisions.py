"""The decisions of a master from its log: one line for each that took effect, in the words of EXPLAIN."""

import re

LINE = re.compile(
    r"decision applied.*? decision=\"(?P<decision>[^\"]*)\" engine=\"(?P<engine>[^\"]*)\" "
    r"slot=\"(?P<slot>[^\"]*)\" because=\"(?P<because>(?:[^\"\\]|\\.)*)\""
)

# Those that end or make an engine.
REPLACING = {"create engine", "drain engine", "delete engine", "draw incarnation", "record end", "delete permit"}
LEDGER = {"reserve", "adopt", "confirm reservation", "end reservation"}


def applied(logs, path_part=""):
    """(decision, engine, slot, because) of every decision logged so far, in the order of the log."""
    return applied_in(logs.text(path_part))


def applied_in(text):
    return [(it["decision"], it["engine"], it["slot"], it["because"].replace('\\"', '"')) for it in LINE.finditer(text)]


def without_ledger(decisions):
    """Without the changes of reservations, which EXPLAIN has only where a scope is limited."""
    return [it for it in decisions if it[0] not in LEDGER]


def explained(rows):
    return [(it["decision"], it["engine"], it["slot"], it["because"]) for it in rows]


def by_subject(decisions):
    """Decisions by engine, each in order: what happens to different engines may happen at the same time."""
    found = {}
    for decision, engine, slot, because in decisions:
        found.setdefault(engine, []).append((decision, slot, because))
    return found


def out_of_order(promised, executed):
    """The first row that differs from the promised order, for people; empty if there is none. An alteration is finished
    by the tick that sees its engines, and a fast engine may be seen later in the same tick: it may be finished later than
    promised, not before a row that was promised to come first."""
    finished = [it for it in promised if not it[1]]
    for row in finished:
        if row not in executed:
            return f"not executed: {row}"
        early = [it for it in promised[: promised.index(row)] if it not in executed[: executed.index(row)]]
        if early:
            return f"{row}\n  came before {early}"
    one, other = ([it for it in rows if it[1]] for rows in (promised, executed))
    for row in range(max(len(one), len(other))):
        if one[row : row + 1] != other[row : row + 1]:
            return f"row {row + 1}:\n  promised: {one[row:]}\n  executed: {other[row:]}"
    return "" if len(executed) == len(promised) else f"executed: {executed}"


def different(promised, executed):
    """What one has and the other has not, for people; empty when they are equal."""
    promised, executed = by_subject(promised), by_subject(executed)
    lines = []
    for engine in sorted(promised.keys() | executed.keys()):
        one, other = promised.get(engine, []), executed.get(engine, [])
        if one != other:
            lines.append(f"{engine or 'alterations'}:")
            lines += [f"  promised: {' | '.join(it)}" for it in one] + [f"  executed: {' | '.join(it)}" for it in other]
    return "\n".join(lines)
