#!/bin/bash
# test.sh: installs what is missing and runs all tests. The last line counts the programs and checks run by scripts;
# cargo prints its own counts above.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
.ci/install build demo test || exit 1
target=${CARGO_TARGET_DIR:-target}
# Tests of the command and the programs below run the release build of the library.
cargo build --release --workspace || exit 1
release=$(realpath "$target/release")
library=$release/libmemledger_preload.so
status=0
MEMLEDGER_TEST_LIB=$library cargo test --workspace --no-fail-fast || status=1

python3 -m unittest discover -s bench -t bench || status=1

passed=0 failed=0 skipped=0
# suite SCRIPT ARGS...: a script that ends with the line "N passed, N failed, N skipped".
suite() {
    local log line
    [ -x "$1" ] || return 0
    echo "== $1"
    log=$(mktemp)
    "$@" </dev/null 2>&1 | tee "$log"
    [ "${PIPESTATUS[0]}" = 0 ] || status=1
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
    rm -f "$log"
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
        skipped=$((skipped + BASH_REMATCH[3]))
    else
        echo "$1 broke off" >&2
        failed=$((failed + 1))
    fi
}
suite test-programs/run.sh --preload "$library"
suite crates/preload/tests/header.sh --preload "$library" --memledger "$release/memledger"
suite test-programs/tagged-c/run.sh --preload "$library" --memledger "$release/memledger"
suite test-programs/real.sh --preload "$library" --memledger "$release/memledger"
suite test-programs/truth/truth.sh --memledger "$release/memledger" --lib "$library"
suite test-programs/kernel-vm.sh --memledger "$release/memledger"
[ "$failed" = 0 ] || status=1
[ $status = 0 ] || echo "tests failed" >&2
echo "$passed passed, $failed failed, $skipped skipped"
exit $status
