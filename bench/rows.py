"""One measured thing: its values in every round, the peer's beside them, the bar, and whether it is met."""

import dataclasses
import statistics


@dataclasses.dataclass
class Bar:
    """A limit for the median. `of_ratio`: of Waybill's value divided by the peer's, round by round."""

    limit: float
    at_most: bool = True
    of_ratio: bool = False

    def met(self, value):
        """Whether a median keeps to it."""
        return value <= self.limit if self.at_most else value >= self.limit

    def text(self, unit):
        """As it stands in the table."""
        sign = "≤" if self.at_most else "≥"
        return f"{sign} {self.limit:g} ×" if self.of_ratio else f"{sign} {self.limit:g} {unit}".rstrip()


@dataclasses.dataclass
class Row:
    """A line of the results. `name` begins with the stage that measured it."""

    name: str
    unit: str
    ours: list
    theirs: list = None
    bar: Bar = None

    def ratios(self):
        """Waybill's value divided by the peer's, round by round; nothing without a peer."""
        return [a / b for a, b in zip(self.ours, self.theirs or []) if b]

    def median(self):
        """What is held against the bar; None if there is nothing."""
        values = self.ratios() if self.bar and self.bar.of_ratio else self.ours
        return statistics.median(values) if values else None

    def met(self):
        """True, False, or None where there is no bar, or nothing to hold against it."""
        median = self.median() if self.bar else None
        return None if median is None else self.bar.met(median)

    def cells(self):
        """What the table shows: name, Waybill, the other, ratio, bar, met."""
        met = {True: "yes", False: "**no**", None: ""}[self.met()]
        name = f"{self.name}, {self.unit}" if self.unit else self.name
        return [name, spread(self.ours), spread(self.theirs), spread(self.ratios(), " ×"),
                self.bar.text(self.unit) if self.bar else "", met]


def spread(values, unit=""):
    """Median (min–max) of one or more values; nothing of none."""
    if not values:
        return ""
    middle = number(statistics.median(values)) + unit
    return middle if len(values) == 1 else f"{middle} ({number(min(values))}–{number(max(values))})"


def number(value):
    """Three digits that count, and thousands set apart."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"
