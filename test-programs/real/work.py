"""A Python workload: work.py N. Containers, text, json, regular expressions, threads, sqlite3, subprocess, exceptions."""
import json
import re
import sqlite3
import subprocess
import sys
import threading


class Node:
    def __init__(self, key, left=None, right=None):
        self.key, self.left, self.right = key, left, right


def tree(depth):
    return Node(depth, tree(depth - 1), tree(depth - 1)) if depth else None


def count(t):
    return 1 + count(t.left) + count(t.right) if t else 0


def text(n):
    words = {f"word-{i}": [i, str(i), (i, i * 2)] for i in range(n)}
    dumped = json.dumps(words, sort_keys=True)
    again = json.loads(dumped)
    found = re.findall(r"word-(\d+)5", " ".join(again))
    return len(dumped), len(found), sum(map(int, found))


def database(n):
    db = sqlite3.connect(":memory:")
    db.execute("create table t(a integer, b text)")
    db.executemany("insert into t values(?, ?)", ((i * 7919 % n, "x" * (i % 90)) for i in range(n)))
    return db.execute("select count(*), sum(length(b)) from (select b from t order by a)").fetchone()


def failing(depth):
    keep = [bytearray(depth * 10)]
    if depth == 0:
        raise ValueError("deep")
    try:
        failing(depth - 1)
    finally:
        keep.append(depth)


out = {}
for i in range(int(sys.argv[1])):
    threads = [threading.Thread(target=lambda k=k: out.__setitem__(k, text(6000 + k))) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print(sorted(out.items()), count(tree(14)), database(15000))
    for k in range(50):
        try:
            failing(k)
        except ValueError as e:
            assert str(e) == "deep"
    print(subprocess.run([sys.executable, "-c", "print(sum(range(1000)))"], stdout=subprocess.PIPE, check=True).stdout)
