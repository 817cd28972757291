#!/bin/bash
# demo.sh [CMD ARGS...]: installs what is missing, builds, and shows which lines hold the memory of CMD (default: a small
# Python program).
set -euo pipefail
cd "$(dirname "$0")"
.ci/install build demo
cargo build --release --quiet
memledger=${CARGO_TARGET_DIR:-target}/release/memledger
if [ $# -eq 0 ]; then
    # Python keeps objects of up to 512 bytes in arenas of its own, unless told to use malloc for all.
    export PYTHONMALLOC=malloc
    set -- python3 -c '
import json
people = [{"id": i, "name": "name %d" % i, "tags": ["a", "b"]} for i in range(100_000)]
text = json.dumps(people)
again = json.loads(text)
print(len(again), "people,", len(text), "bytes of JSON")'
fi
exec "$memledger" run -- "$@"
