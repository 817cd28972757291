"""Tests of the runner: python3 -m unittest discover -s bench -t bench"""
import math
import os
import pathlib
import tempfile
import unittest
import xml.dom.minidom

from . import asked, configs, groups, lab, plot, report, stats, table


def data(**series):
    """micro, workload pair: configuration -> ns of each round."""
    d = stats.Data()
    for config, values in series.items():
        for r, v in enumerate(values, 1):
            d.add("micro", "pair", config, r, "ns", v)
    return d


class Stats(unittest.TestCase):
    def test_quartiles(self):
        self.assertEqual(stats.quartiles([4, 1, 3, 2, 5]), (2, 3, 4))
        self.assertEqual(stats.quartiles([1, 2]), (1.25, 1.5, 1.75))
        self.assertEqual(stats.quartiles(iter([7])), (7, 7, 7))
        self.assertTrue(all(map(math.isnan, stats.quartiles([]))))

    def test_geometric_mean(self):
        self.assertAlmostEqual(stats.geomean([0.5, 2, 8]), 2)
        for bad in ([], [1, 0], [1, -1], [1, math.nan]):
            self.assertTrue(math.isnan(stats.geomean(bad)), bad)

    def test_ratios_are_of_the_same_round(self):
        # The machine is ten times slower in round 2; the ratio of medians would be 0.2.
        d = data(a=[2, 20, 2], b=[1, 10, 1])
        self.assertEqual(d.ratio("micro", "pair", "a", "b", "ns"), (2, 2, 2))
        # A round that one of them lacks is left out.
        d.add("micro", "pair", "a", 4, "ns", 1000)
        self.assertEqual(d.difference("micro", "pair", "a", "b", "ns"), (1, 1, 5.5))
        self.assertTrue(math.isnan(d.ratio("micro", "pair", "a", "c", "ns")[1]))

    def test_geomean_counts_what_both_ran(self):
        d = data(a=[4], b=[1])
        d.add("micro", "calls", "a", 1, "ns", 1)
        self.assertEqual(d.geomean("micro", "a", "b", "ns"), (4, 1))

    def test_figures_survive_the_file(self):
        d = data(a=[1.25, 123456789.0], b=[0.001])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "runs.csv"
            d.write(path)
            e = stats.Data()
            e.add("micro", "old", "a", 1, "ns", 5)
            e.add("macro", "json", "a", 1, "cpu", 5)
            e.read(path)
        self.assertEqual(e.of("micro", "pair", "a", "ns"), {1: 1.25, 2: 123456789.0})
        self.assertEqual(e.of("micro", "old", "a", "ns"), {}, "a group is replaced as a whole")
        self.assertEqual(e.of("macro", "json", "a", "cpu"), {1: 5})


class Tables(unittest.TestCase):
    def test_numbers(self):
        got = [table.number(x) for x in (0.012345, 1.2345, 12.345, 123.45, 12345, 0, -1.5, math.nan)]
        self.assertEqual(got, ["0.0123", "1.23", "12.3", "123", "12345", "0", "-1.50", "–"])

    def test_text_and_markdown(self):
        head, rows = ["name", "n"], [["a", "10"], ["long name", "2"]]
        self.assertEqual(table.text(head, rows), "name        n\n---------  --\na          10\nlong name   2\n")
        self.assertEqual(table.markdown(head, [["a|b", 1]]), "| name | n |\n| --- | ---: |\n| a\\|b | 1 |\n")

    def test_fill(self):
        page = "a\n<!-- x: generated -->\nold\n<!-- end -->\nb\n"
        filled = report.fill(page, {"x": "new\n"})
        self.assertEqual(filled, "a\n<!-- x: generated -->\nnew\n<!-- end -->\nb\n")
        self.assertEqual(report.fill(filled, {"x": "new\n"}), filled)
        with self.assertRaises(ValueError):
            report.fill(page, {})
        with self.assertRaises(ValueError):
            report.fill(page, {"x": "", "y": ""})


class Asked(unittest.TestCase):
    def row(self, d, start):
        return next(asked.clean(r) for r in asked.rows(d) if r[0].startswith(start))

    def test_verdict(self):
        self.assertEqual(asked.verdict([(1, 2), (2, 2)]), "met")
        self.assertEqual(asked.verdict([(1, 2), (5, 2)], " ns"), "missed by 3.0 ns")
        self.assertEqual(asked.verdict([(1.2, 1)], relative=True), "missed by 20.0 %")
        self.assertEqual(asked.verdict([(1, 2), (math.nan, 1)]), "not measured")

    def test_nothing_measured_is_nothing_met(self):
        rows = asked.rows(stats.Data())
        self.assertEqual(len(rows), 12)
        for r in map(asked.clean, rows):
            self.assertEqual(r[3], "not measured", r[0])
            self.assertNotIn("nan", r[2])

    def test_pair(self):
        d = data(out=[4, 4, 4], tags=[5, 5, 9])
        for c, n in (("out", 50), ("tags", 63)):
            d.add("counts", "pair", c, 1, "instructions", n)
        self.assertEqual(self.row(d, "tags over compiled out")[2:], ("+13.0 instructions, +1.00 ns", "instructions: missed by 1.0 instructions; time: met"))

    def test_off_is_measurable_beyond_noise(self):
        d = data(out=[10] * 4, off=[10.5] * 4)
        d.add("counts", "pair", "out", 1, "instructions", 50)
        d.add("counts", "pair", "off", 1, "instructions", 52)
        d.values.update(data(glibc=[10] * 4, **{"glibc-again": [11] * 4}).values)
        self.assertEqual(self.row(d, "off over")[3], "met", "glibc differs from itself by more")
        d.values.update(data(**{"glibc-again": [10] * 4}).values)
        self.assertEqual(self.row(d, "off over")[3], "time missed by 0.50 ns")

    def test_mean_leaves_no_workload_out_silently(self):
        d = data(tags=[1], mimalloc=[2], jemalloc=[2], glibc=[2])
        row = self.row(d, "tags, geometric mean of the micro set")
        self.assertTrue(row[2].startswith("0.50 / 0.50 / 0.50 (1 of 16 workloads)"), row)
        self.assertEqual(row[3], "met")

    def test_memory(self):
        d = stats.Data()
        for metric, value in (("requested", 100), ("resident", 110)):
            d.add("memory", "live", "tags", 1, metric, value)
        for metric, value in (("peak", 1000), ("second", 80)):
            d.add("memory", "spike", "tags", 1, metric, value)
        self.assertEqual(self.row(d, "RSS over")[2:], ("+10.0 % / not there yet", "met; 2-byte: not measured"))
        self.assertEqual(self.row(d, "RSS left")[2:], ("8.0 %", "missed by 3.0 points"))


class Plot(unittest.TestCase):
    def test_ticks(self):
        self.assertEqual(plot.ticks(0.4, 60), [0.5, 1, 2, 5, 10, 20, 50])
        self.assertIn(1, plot.ticks(0.9, 1.1))

    def test_svg_is_well_formed(self):
        svg = plot.dots("a < b & c", [("w1", {"x": (0.9, 1, 1.1)}), ("w2", {"y": (2, 3, 40)})], ["x", "y"])
        root = xml.dom.minidom.parseString(svg).documentElement
        # Two in the legend, two medians.
        self.assertEqual(len(root.getElementsByTagName("circle")), 4)
        self.assertIsNone(plot.dots("nothing", [("w", {})], ["x"]))


class Running(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.lab = lab.Lab(self.folder.name)

    def test_rounds_go_back_and_forth(self):
        order, d = [], stats.Data()
        run = lambda name: lambda: order.append(name) or {"ns": len(order)}
        self.lab.rounds(d, "g", "w", {n: run(n) for n in "abc"}, 4, few=("c",))
        self.assertEqual("".join(order), "ba" "abc" "cba" "abc" "ba")
        self.assertEqual(d.of("g", "w", "b", "ns"), {1: 4, 2: 7, 3: 10, 4: 12}, "warming up is not kept")

    def test_a_failure_is_told_once_and_leaves_the_rest(self):
        def bad():
            raise lab.Failed("on purpose")
        d = stats.Data()
        self.lab.rounds(d, "g", "w", {"bad": bad, "good": lambda: {"ns": 1}}, 3)
        self.assertEqual(self.lab.failures, ["g w: bad: on purpose"])
        self.assertEqual(len(d.of("g", "w", "good", "ns")), 3)

    def test_commands(self):
        self.assertEqual(lab.run(["echo", "x"], os.environ, "/"), (b"x\n", b""))
        with self.assertRaisesRegex(lab.Failed, "status 3: why"):
            lab.run(["sh", "-c", "echo why >&2; exit 3"], os.environ, "/")
        with self.assertRaisesRegex(lab.Failed, "over 0.1 s"):
            lab.run(["sleep", "9"], os.environ, "/", 0.1)

    def test_environment(self):
        os.environ["MEMLEDGER"] = "never"
        self.addCleanup(os.environ.pop, "MEMLEDGER")
        self.assertNotIn("MEMLEDGER", lab.environment())
        off = configs.named(configs.LINKED, ("off",))[0]
        self.assertEqual(lab.environment(off)["MEMLEDGER"], "0")
        with self.assertRaisesRegex(lab.Failed, "not installed"):
            lab.environment(configs.Config("x", preload="libnothing.so"), "/")

    def test_names_agree(self):
        self.assertEqual(set(asked.MICRO_SET), set(groups.MICRO))
        self.assertEqual(set(asked.PRELOAD_SET), set(groups.PRELOAD))
        self.assertEqual({c.build for c in configs.LINKED}, set(configs.BUILDS))
        for all_ in (configs.LINKED, configs.PRELOADED):
            self.assertEqual(len({c.name for c in all_}), len(all_))


if __name__ == "__main__":
    unittest.main()
