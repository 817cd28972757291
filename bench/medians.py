"""Medians of preload.sh's runs and ratios to glibc: medians.py RUNS.csv. Exit status 1 if `ledger` is over a limit."""
import collections
import csv
import statistics
import sys

CPU_LIMIT, RSS_LIMIT, RSS_EXTRA_KIB = 1.3, 1.3, 4096

runs = collections.defaultdict(lambda: collections.defaultdict(dict))
order, configs = [], []
for row in csv.DictReader(open(sys.argv[1])):
    runs[row["program"]][row["config"]][row["round"]] = row
    if row["program"] not in order:
        order.append(row["program"])
    if row["config"] not in configs:
        configs.append(row["config"])
configs.sort(key=lambda c: (c != "glibc", c != "ledger"))


def median(rows, key):
    return statistics.median(float(r[key]) for r in rows.values())


def paired(rows, base, key):
    """Median of the ratios round by round: a ratio of neighbours in time."""
    both = [(float(r[key]), float(base[n][key])) for n, r in rows.items() if n in base]
    return statistics.median(a / b for a, b in both if b > 0) if any(b > 0 for _, b in both) else float("nan")


over = 0
print(f"\n{'program':9} {'config':10} {'user s':>8} {'ratio':>6} {'sys s':>8} {'wall s':>8} {'ratio':>6} {'peak KiB':>9} {'ratio':>6}  verdict")
for program in order:
    base = runs[program].get("glibc", {})
    for config in configs:
        rows = runs[program].get(config)
        if not rows:
            continue
        user, rss = paired(rows, base, "user"), median(rows, "rss_kib") / median(base, "rss_kib")
        words = []
        if config == "ledger":
            if not user <= CPU_LIMIT:
                words.append(f"user CPU over {CPU_LIMIT}")
            if median(rows, "rss_kib") > RSS_LIMIT * median(base, "rss_kib") + RSS_EXTRA_KIB:
                words.append("peak RSS over the limit")
            over += bool(words)
        states = {r["status"] for r in rows.values()} | {r["status"] for r in base.values()}
        if len(states) > 1:
            words.append("exit status differs: " + ", ".join(sorted(states)))
            over += config == "ledger"
        print(f"{program:9} {config:10} {median(rows, 'user'):8.3f} {user:6.2f} {median(rows, 'sys'):8.3f} {median(rows, 'wall'):8.3f} "
              f"{paired(rows, base, 'wall'):6.2f} {median(rows, 'rss_kib'):9.0f} {rss:6.2f}  {'; '.join(words) or ('ok' if config == 'ledger' else '')}")
print(f"\n{over} program(s) over a limit" if order else "\nnothing was measured")
sys.exit(bool(over) or not order)
