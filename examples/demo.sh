# demo.sh - what `make demo` shows: emit, compile, run and check one kernel; without a GPU, in the
# simulator, which also finds what is wrong with a broken one.
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
gpu=$("$warploom" doctor | grep -c '^gpu  *ok') || true
if [ "$gpu" != 0 ]; then
    show run $problem --random 1 --check
    exit
fi

echo "No GPU here: the kernel runs in the simulator, on a smaller problem, every access checked."
small="head_dim=128 dtype=bf16 mask=causal layout=bshd batch=1 heads=4 seq_q=1024"
show run $small --device sim --random 1 --check
show verify $small --schedules 3

echo "The same kernel without its waits for the tensor cores:"
"$warploom" emit $small | sed 's/wgmma_wait_all();//' >"${BUILD:-build}/broken.cu"
code=0
show verify --source "${BUILD:-build}/broken.cu" $small --schedules 1 || code=$?
[ "$code" = 6 ]
