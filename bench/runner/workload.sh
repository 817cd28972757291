#!/bin/bash
# workload.sh lacks|prepare|command NAME DIR SCALE: the real programs of test-programs/real, for the runner. `command` prints the words
# with a zero byte after each. They are run in DIR.
# shellcheck source=../../test-programs/real/workloads.sh disable=SC1091
. "$(dirname "$0")/../../test-programs/real/workloads.sh"
case $1 in
lacks) workload_lacks "$2" ;;
prepare) workload_prepare "$2" "$3" "$4" ;;
command) workload_command "$2" "$3" && printf '%s\0' "${COMMAND[@]}" ;;
*) exit 2 ;;
esac
