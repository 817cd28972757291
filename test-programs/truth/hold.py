"""Holds known kinds of objects and ends without freeing them."""
import os

lists = [[i] * 20 for i in range(4000)]
texts = ["text %d" % i + "x" * (i % 200) for i in range(8000)]
dicts = [{"a": i, "b": None} for i in range(3000)]
arrays = [bytearray(5000) for _ in range(200)]
big = {str(i): (i,) for i in range(5000)}
os.write(1, b"%d\n" % (len(lists) + len(texts) + len(dicts) + len(arrays) + len(big)))
os._exit(0)
