"""The decisions of a master, as its log tells them: one line for each that took effect, in EXPLAIN's own words."""

import re

LINE = re.compile(r"decision applied.*? decision=\"(?P<decision>[^\"]*)\" engine=\"(?P<engine>[^\"]*)\" "
                  r"slot=\"(?P<slot>[^\"]*)\" because=\"(?P<because>(?:[^\"\\]|\\.)*)\"")


def applied(logs, path_part=""):
    """(decision, engine, slot, because) of every decision logged so far, in the order of the log."""
    return applied_in(logs.text(path_part))


def applied_in(text):
    """The same of a piece of a log."""
    return [
        (it["decision"], it["engine"], it["slot"], it["because"].replace('\\"', '"')) for it in LINE.finditer(text)
    ]


def explained(rows):
    """The same of the rows of EXPLAIN."""
    return [(it["decision"], it["engine"], it["slot"], it["because"]) for it in rows]


def by_subject(decisions):
    """Decisions by engine, each in order: what happens to different engines may happen at the same time."""
    found = {}
    for decision, engine, slot, because in decisions:
        found.setdefault(engine, []).append((decision, slot, because))
    return found


def different(promised, executed):
    """What one has and the other has not, for people; empty when they are equal."""
    lines = []
    for engine in sorted(promised.keys() | executed.keys()):
        one, other = promised.get(engine, []), executed.get(engine, [])
        if one != other:
            lines.append(f"{engine or 'alterations'}:")
            lines += [f"  promised: {' | '.join(it)}" for it in one] + [f"  executed: {' | '.join(it)}" for it in other]
    return "\n".join(lines)
