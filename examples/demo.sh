# demo.sh - what `make demo` shows: emit, compile, run and check one kernel.
# SPDX-License-Identifier: BSD-3-Clause
set -eu
warploom=${BUILD:-build}/warploom
problem="head_dim=128 dtype=bf16 mask=causal layout=bshd batch=1 heads=16 seq_q=4096"
show() {
    echo "\$ warploom $*"
    "$warploom" "$@" || return
    echo
}

show list $problem | head -n 4
show emit $problem -o "${BUILD:-build}/demo.cu"
head -n 3 "${BUILD:-build}/demo.cu"
echo
show compile $problem
code=0
show run $problem --random 1 --check || code=$?
[ "$code" != 5 ] || echo "No GPU here: the demo stops after compile. The kernel waits in the cache."
[ "$code" = 5 ] || exit "$code"
