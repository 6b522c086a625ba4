"""The sample data's formula, written again from its description in crates/datafusion-engine/src/sample.rs."""

import collections
import dataclasses
import decimal

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
CITIES = ["Amsterdam", "Berlin", "Cairo", "Delhi", "Lima", "Oslo", "Quito", "Tokyo"]
PAID_BY = [None, "card", "card", "cash", "app"]
TOUR_ROWS = 200_000


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@dataclasses.dataclass(frozen=True)
class Ride:
    id: int
    city: str
    distance_tenths: int
    passengers: int
    fare_cents: int
    paid_by: str | None


def ride(seed, number):
    x = [mix((seed + (number * 8 + k) * GOLDEN) & MASK) for k in range(6)]
    distance = 5 + x[2] % 300
    return Ride(
        id=number,
        city=CITIES[x[0] % 8],
        distance_tenths=distance,
        passengers=1 + x[3] % 4,
        fare_cents=250 + 12 * distance + x[4] % 500,
        paid_by=PAID_BY[x[5] % 5],
    )


def cents(value):
    return decimal.Decimal(value).scaleb(-2)


def tour_query(seed, rows=TOUR_ROWS):
    """What the tour's query answers: (city, rides, fares, farthest_km), the five cities with the highest fares."""
    count, fares, farthest = collections.Counter(), collections.Counter(), collections.Counter()
    for number in range(1, rows + 1):
        it = ride(seed, number)
        count[it.city] += 1
        fares[it.city] += it.fare_cents
        farthest[it.city] = max(farthest[it.city], it.distance_tenths)
    best = sorted(fares, key=lambda city: -fares[city])[:5]
    return [(city, count[city], cents(fares[city]), decimal.Decimal(farthest[city]).scaleb(-1)) for city in best]
