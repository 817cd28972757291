"""Medians, quartiles, and ratios of neighbours in time.

Configurations run in turn, so the runs of one round are close in time; what the machine does to one it does to the others. A
ratio is therefore that of two runs of one round, and the result is the median over the rounds. Figures are kept as
rows (group, workload, config, round, metric, value): the form of the CSV file, from which every table is made.
"""
import collections
import csv
import math

COLUMNS = ["group", "workload", "config", "round", "metric", "value"]


def quantile(values, q):
    """The q-quantile, linear between neighbours. Of nothing: nan."""
    v = sorted(values)
    if not v:
        return math.nan
    at = q * (len(v) - 1)
    low = int(at)
    high = min(low + 1, len(v) - 1)
    return v[low] + (v[high] - v[low]) * (at - low)


def quartiles(values):
    """(first quartile, median, third quartile)"""
    v = list(values)
    return tuple(quantile(v, q) for q in (0.25, 0.5, 0.75))


def median(values):
    return quantile(values, 0.5)


def geomean(values):
    """Geometric mean; nan of nothing or of what is not positive."""
    v = list(values)
    if not v or any(not x > 0 for x in v):
        return math.nan
    return math.exp(sum(math.log(x) for x in v) / len(v))


class Data:
    """All figures of one or more runs of the suite."""

    def __init__(self):
        self.rows = []
        self.values = collections.defaultdict(dict)

    def add(self, group, workload, config, round_, metric, value):
        self.rows.append((group, workload, config, int(round_), metric, float(value)))
        self.values[group, workload, config, metric][int(round_)] = float(value)

    def write(self, path):
        with open(path, "w", newline="") as f:
            w = csv.writer(f, lineterminator="\n")
            w.writerow(COLUMNS)
            w.writerows(r[:5] + (f"{r[5]:.6g}" if abs(r[5]) < 1e6 else f"{r[5]:.0f}",) for r in self.rows)

    def read(self, path):
        """Adds a file. What was there of the same group is replaced: a later file wins as a whole."""
        with open(path, newline="") as f:
            rows = list(csv.DictReader(f))
        groups = {r["group"] for r in rows}
        self.rows = [r for r in self.rows if r[0] not in groups]
        for key in [k for k in self.values if k[0] in groups]:
            del self.values[key]
        for r in rows:
            self.add(*(r[c] for c in COLUMNS))

    def of(self, group, workload, config, metric):
        """round -> value; empty if it was not measured."""
        return self.values.get((group, workload, config, metric), {})

    def workloads(self, group):
        return list(dict.fromkeys(r[1] for r in self.rows if r[0] == group))

    def configs(self, group):
        return list(dict.fromkeys(r[2] for r in self.rows if r[0] == group))

    def median(self, group, workload, config, metric):
        return median(self.of(group, workload, config, metric).values())

    def _pairs(self, group, workload, config, base, metric):
        a, b = self.of(group, workload, config, metric), self.of(group, workload, base, metric)
        return [(a[r], b[r]) for r in sorted(a) if r in b]

    def ratio(self, group, workload, config, base, metric):
        """Quartiles of config over base, round by round."""
        return quartiles(a / b for a, b in self._pairs(group, workload, config, base, metric) if b > 0)

    def difference(self, group, workload, config, base, metric):
        """Quartiles of config minus base, round by round."""
        return quartiles(a - b for a, b in self._pairs(group, workload, config, base, metric))

    def geomean(self, group, config, base, metric, workloads=None):
        """Geometric mean of the median ratios over the workloads that both ran, and how many those were."""
        ratios = [self.ratio(group, w, config, base, metric)[1] for w in workloads or self.workloads(group)]
        ratios = [r for r in ratios if not math.isnan(r)]
        return geomean(ratios), len(ratios)
