#!/bin/bash
# machine.sh: what a result file says of the machine and the tree it was measured on.
echo "date: $(date -u +%Y-%m-%dT%H:%MZ)"
echo "cpu: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
echo "kernel: $(uname -sr), libc: $(ldd --version | head -n 1 | sed 's/.* //')"
echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
echo "commit: $(git -C "$(dirname "$0")" describe --always --dirty 2>/dev/null)"
