"""The catalog and its slots as they follow from the statements, computed a second time.

The rules are those of docs/engines.md, independent of the product's code. The database's one counter orders all changes:
`Replay` takes them in the order of the numbers that they drew and accounts for each number up to the last. A change that took
effect twice, in part, or without a statement has no place, and neither has one that was lost after others had observed it.
"""

import copy
import dataclasses

MINIMUM, STARTED = "minimum", "start"


@dataclasses.dataclass(frozen=True)
class Change:
    verb: str
    kind: str
    name: str
    options: tuple = ()

    OPTIONS = {
        "min_engines": lambda it: f"MIN_ENGINES {it}",
        "max_engines": lambda it: f"MAX_ENGINES {it}",
        "driver_memory": lambda it: f"DRIVER_MEMORY '{it}'",
        "properties": lambda it: "PROPERTIES (" + ", ".join(f"'{k}'='{v}'" for k, v in it) + ")",
        "comment": lambda it: f"COMMENT '{it}'",
        "units": lambda it: "UNIT_LIST (" + ", ".join(f"'{name}'" for name in it) + ")",
        "pools": lambda it: "RESOURCE_POOL_LIST (" + ", ".join(f"'{name}'" for name in it) + ")",
        "users": lambda it: "USER_LIST (" + ", ".join(f"'{name}'" for name in it) + ")",
    }
    KINDS = {"unit": "RESOURCE UNIT", "pool": "RESOURCE POOL", "tenant": "TENANT"}

    def text(self):
        options = ", ".join(self.OPTIONS[key](value) for key, value in self.options)
        return f"{self.verb} {self.KINDS[self.kind]} {self.name} {options}".rstrip()


NEW = {
    "unit": {"min_engines": 0, "max_engines": 10, "driver_memory": "1G", "properties": {}, "comment": None},
    "pool": {"units": [], "comment": None},
    "tenant": {"pools": [], "users": [], "comment": None},
}


class Catalog:
    """Objects by (kind, name), and the generation of each one's last change."""

    def __init__(self):
        self.objects = {}
        self.generations = {}

    def after(self, change):
        """The catalog after a change, which must make sense; generations are not changed here."""
        key = (change.kind, change.name)
        new = Catalog()
        new.objects, new.generations = copy.deepcopy(self.objects), dict(self.generations)
        if change.verb == "CREATE":
            require(key not in self.objects, f"{key} is there already")
            new.objects[key] = copy.deepcopy(NEW[change.kind])
        require(key in new.objects, f"{key} is not there")
        if change.verb == "DROP":
            users = [other for other in self.objects if change.name in self.listed(other, change.kind)]
            require(not users, f"{key} is listed by {users}")
            del new.objects[key]
            return new
        spec = new.objects[key]
        for option, value in change.options:
            if option == "properties":
                spec["properties"].update(value)
            else:
                spec[option] = list(value) if isinstance(value, tuple) else value
        return new

    def listed(self, key, kind):
        spec = self.objects[key]
        if kind == "unit":
            return spec.get("units", ())
        return spec.get("pools", ()) if kind == "pool" else ()

    def links(self):
        """Every (tenant, pool, unit) that belongs together, sorted."""
        found = []
        for (kind, tenant), spec in self.objects.items():
            if kind == "tenant":
                for pool in spec["pools"]:
                    found += [(tenant, pool, unit) for unit in self.objects["pool", pool]["units"]]
        return sorted(set(found))

    def unit(self, name):
        return self.objects["unit", name]

    def configuration(self, link):
        """What an engine of the link is made from, as far as this test changes it; `None` if that is gone."""
        unit = self.objects.get(("unit", link[2]))
        return unit and (unit["driver_memory"], sorted(unit["properties"].items()))


class Impossible(AssertionError):
    """Something took effect that can't have, at this place."""


def require(true, what):
    if not true:
        raise Impossible(what)


@dataclasses.dataclass
class Slot:
    incarnation: int
    origin: str
    born: int


class Replay:
    """Catalog and slots after the changes so far, and the last number that they drew."""

    def __init__(self):
        self.catalog = Catalog()
        self.slots = {}
        self.number = 0

    def of_link(self, link):
        return {key: slot for key, slot in self.slots.items() if key[:3] == link}

    def follows(self, change):
        """(new catalog, slots that go, slots that are renewed, slots that come), the last two in the order of drawing."""
        new = self.catalog.after(change)
        links = new.links()
        delete, renew, add = [], [], []
        for link in sorted({key[:3] for key in self.slots} | set(links)):
            rows = self.of_link(link)
            if link not in links:
                delete += sorted(rows)
                continue
            unit = new.unit(link[2])
            gone = self.surplus(rows, unit["min_engines"], unit["max_engines"])
            delete += gone
            kept = sorted(key for key in rows if key not in gone)
            if self.catalog.configuration(link) != new.configuration(link):
                renew += kept
            missing = max(unit["min_engines"] - len(kept), 0)
            add += [(*link, ordinal) for ordinal in free_ordinals(kept, missing)]
        return new, delete, renew, add

    @staticmethod
    def surplus(rows, least, most):
        """What MIN and MAX take away: rows of the minimum above MIN, then what is above MAX, started ones first."""
        highest_first = sorted(rows, reverse=True)
        minimum = [key for key in highest_first if rows[key].origin == MINIMUM]
        gone = minimum[: max(len(minimum) - least, 0)]
        left = [key for key in highest_first if key not in gone]
        left.sort(key=lambda key: rows[key].origin == MINIMUM)
        return gone + left[: max(len(left) - most, 0)]

    def alter(self, change, base, generation):
        """An alteration whose first number is the next one and whose last is `generation`."""
        new, delete, renew, add = self.follows(change)
        key, first = (change.kind, change.name), self.number + 1
        is_base = self.catalog.generations.get(key, 0)
        require(base == is_base, f"{change.text()}: the base generation is {base}, the object's is {is_base}")
        drawn = len(renew) + len(add)
        require(generation == first + drawn, f"{change.text()}: {drawn} slots follow, the numbers are {first}..{generation}")
        for slot in delete:
            del self.slots[slot]
        for place, slot in enumerate(renew):
            self.slots[slot].incarnation = first + 1 + place
        for place, slot in enumerate(add, first + 1 + len(renew)):
            self.slots[slot] = Slot(place, MINIMUM, place)
        self.catalog = new
        if change.verb == "DROP":
            new.generations.pop(key, None)
        else:
            new.generations[key] = first
        self.number = generation
        return dict(zip([*renew, *add], range(first + 1, generation + 1), strict=True))

    def start(self, slot, incarnation):
        link = slot[:3]
        require(link in self.catalog.links(), f"START: {link} does not belong together")
        rows = self.of_link(link)
        require(len(rows) < self.catalog.unit(link[2])["max_engines"], f"START: {link} is at its limit")
        lowest = free_ordinals(rows, 1)[0]
        require(slot[3] == lowest, f"START took {slot}, the lowest free ordinal is {lowest}")
        self.draw(incarnation)
        self.slots[slot] = Slot(incarnation, STARTED, incarnation)

    def restart(self, slot, named_incarnation, incarnation):
        self.present(slot, named_incarnation, "RESTART")
        self.draw(incarnation)
        self.slots[slot].incarnation = incarnation

    def stop(self, slot, incarnation):
        self.present(slot, incarnation, "STOP")
        left = len(self.of_link(slot[:3])) - 1
        require(left >= self.catalog.unit(slot[2])["min_engines"], f"STOP of {slot} leaves {left}")
        self.draw(self.number + 1)
        del self.slots[slot]

    def nothing(self, slot, named_incarnation, effect):
        """RESTART of an engine that was restarted before, or any of one whose slot is gone: a number, no effect."""
        row = self.slots.get(slot)
        succeeded = row is not None and row.born <= named_incarnation < row.incarnation
        gone = row is None or row.born > named_incarnation
        require(succeeded if effect == "in_progress" else gone, f"{effect}: {slot} has {row}, named was {named_incarnation}")
        self.draw(self.number + 1)

    def renewed_by_master(self, slot, incarnation):
        require(slot in self.slots, f"a master renewed {slot}, which does not exist")
        self.draw(incarnation)
        self.slots[slot].incarnation = incarnation

    def present(self, slot, incarnation, verb):
        row = self.slots.get(slot)
        require(row is not None and row.incarnation == incarnation, f"{verb} of {slot} {incarnation}, there is {row}")

    def draw(self, number):
        require(number == self.number + 1, f"number {number} was drawn, the next one is {self.number + 1}")
        self.number = number


def free_ordinals(taken, count):
    ordinals = {key[3] for key in taken}
    found, ordinal = [], 0
    while len(found) < count:
        if ordinal not in ordinals:
            found.append(ordinal)
        ordinal += 1
    return found
