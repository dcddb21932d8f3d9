#!/bin/sh
# visit.sh - one visit to a GPU machine: each part under a timeout, its log in $OUT.
# SPDX-License-Identifier: BSD-3-Clause
#
#   tests/gpu/visit.sh PART…     parts: doctor quick full knobs names sanitize offline bundle both
#                                bench pick tune search tuned variants speed
#   tests/gpu/visit.sh fill      without a GPU: makes what `offline` and `bundle` are served from;
#                                before `tune`, make its broken generator: python3 tests/broken.py
#   tests/gpu/visit.sh kernels   without a GPU: makes $B/tuned-cache, the kernels of the 36 points,
#                                which `search` and `tuned` then need not compile (some 50 MB)
# `tuned` measures the table of choices in $BUDGET seconds (200) and leaves it in $OUT/h200.yaml, to
# be put in specs/tuned/.
#
# build/ is used as it is: nothing is compiled with a C compiler here. Variables: OUT (logs; else
# build/gpu), NAMES (a file of candidates, of `names` and `pick`), POINTS, PEERS and BUDGET (points,
# peers and seconds of `bench` and `pick`), NAME (of the results file), COMMIT (named in it), EXTRA
# (more options of the part's program).
# shellcheck disable=SC2086
cd "$(dirname "$0")/../.." || exit 1
B=$(cd "${BUILD:-build}" && pwd) || exit 1
OUT=${OUT:-$B/gpu}
mkdir -p "$OUT"
export BUILD="$B" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export WARPLOOM_CACHE_DIR="${WARPLOOM_CACHE_DIR:-$B/gpu/cache}"
OFFLINE=$B/offline-cache
TUNED=${TUNED:-$B/tuned-cache}
failed=

# step NAME SECONDS COMMAND…: runs it, keeps the log, notes a failure, shows the end of the log.
step() {
    name=$1 seconds=$2
    shift 2
    echo "== $name: $*" >>"$OUT/$log.log"
    begin=$(date +%s)
    timeout -k 5 "$seconds" "$@" >"$OUT/step" 2>&1 </dev/null
    rc=$?
    cat "$OUT/step" >>"$OUT/$log.log"
    tail -n "${LINES_SHOWN:-40}" "$OUT/step"
    rm -f "$OUT/step"
    echo "== $name: exit $rc, $(($(date +%s) - begin)) s" | tee -a "$OUT/$log.log"
    [ $rc = 0 ] || failed="$failed $name($rc)"
    return $rc
}

# Small problems that hold every shape of trouble: cut tiles, grouped heads, dead rows, panels.
SMALL="head_dim=64 dtype=bf16 mask=causal layout=bshd batch=2 heads=2 seq_q=200 seq_k=333
head_dim=128 dtype=bf16 mask=none layout=bhsd heads=2 kv_heads=1 seq_q=333 seq_k=520
head_dim=128 dtype=fp16 mask=causal layout=bshd batch=2 heads=2 seq_q=400 seq_k=150
head_dim=256 dtype=bf16 mask=causal layout=bshd heads=2 seq_q=260
head_dim=192 head_dim_v=128 dtype=bf16 mask=none layout=bshd heads=2 seq_q=130 seq_k=200
head_dim=80 dtype=bf16 mask=causal layout=bshd heads=3 seq_q=200"

# The same trouble for each way to multiply, to sum and to share out: forced candidates.
FORCED="head_dim=64 dtype=bf16 mask=causal layout=bshd batch=2 heads=2 seq_q=300 seq_k=433 \
--kernel fwd_d64_bf16_causal_m256n64_s7_w4_opt_dyn_p32c112
head_dim=128 dtype=bf16 mask=none layout=bhsd heads=2 kv_heads=1 seq_q=333 seq_k=520 \
--kernel fwd_d128_bf16_none_m192n64_s7_w3_opt_dyn_p32c160
head_dim=128 dtype=fp16 mask=causal layout=bshd batch=2 heads=2 seq_q=400 seq_k=150 \
--kernel fwd_d128_fp16_causal_m128n128_s4_w2_lazy_dyn_p40c232
head_dim=128 dtype=bf16 mask=causal layout=bshd heads=2 seq_q=300 \
--kernel fwd_d128_bf16_causal_m64n128_s4_w1_exact_dyn_p248c248
head_dim=256 dtype=bf16 mask=causal layout=bshd heads=2 seq_q=260 \
--kernel fwd_d256_bf16_causal_m128n64_s4_w2_exact_static_p40c232
head_dim=192 head_dim_v=128 dtype=bf16 mask=none layout=bshd heads=2 seq_q=230 seq_k=200 \
--kernel fwd_d192_v128_bf16_none_m192n64_s4_w3_lazy_static_p32c160
head_dim=40 dtype=bf16 mask=causal layout=bshd batch=40 heads=8 seq_q=200 \
--kernel fwd_d40_bf16_causal_m64n64_s2_w1_opt_dyn_p248c248"

doctor() {
    step libraries 20 sh -c "ldd $B/warploom $B/libwarploom.so $B/libwarploom-gen.so | \
        grep 'not found' && exit 1; ls -l $B/warploom"
    step doctor 60 "$B/warploom" doctor
    step gpu 30 nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv
}

# each COMMAND LIST: runs it with a number and the words of each of its problems.
each() {
    i=0
    while read -r problem; do
        i=$((i + 1))
        # shellcheck disable=SC2086
        "$1" $i $problem
    done <<END
$2
END
}

fill_one() {
    n=$1
    shift
    step "fill-$n" 60 env WARPLOOM_CACHE_DIR="$OFFLINE" "$B/warploom" compile "$@"
}

# A cache made elsewhere serves: no NVRTC, no generator, JIT off, nothing written.
offline_one() {
    n=$1
    shift
    step "offline-$n" 60 env WARPLOOM_CACHE_DIR="$OFFLINE" WARPLOOM_CACHE=ro WARPLOOM_JIT=off \
        WARPLOOM_NVRTC=/nonexistent WARPLOOM_GEN=/nonexistent \
        "$B/warploom" run "$@" --random 1 --check
}

# racecheck's reports that no line of racecheck.expect, which gives the reasons, accounts for.
races() {
    grep -E 'Race reported|hazard detected' "$1" | grep -vE -f "$OUT/expect" |
        sed -E 's/0x[0-9a-f]+/0x…/g' | sort | uniq -c
}

sanitize_one() {
    n=$1
    shift
    was=$failed
    LINES_SHOWN=4 step "$check-$n" 90 "$tool" --tool "$check" --error-exitcode 9 \
        --log-file "$OUT/report" "$B/warploom" run "$@" --random 1 --check
    rc=$?
    [ -f "$OUT/report" ] || return
    cat "$OUT/report" >>"$OUT/$log.log"
    tail -n 3 "$OUT/report"
    if [ "$check" = racecheck ]; then
        found=$(races "$OUT/report")
        [ $rc = 9 ] && failed=$was
        [ -z "$found" ] || { echo "$found" | head; failed="$failed racecheck-$n"; }
    fi
    rm -f "$OUT/report"
}

sanitize() {
    tool=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    grep -vE '^(#|$)' tests/gpu/racecheck.expect >"$OUT/expect"
    for check in ${TOOLS:-memcheck initcheck synccheck racecheck}; do
        each sanitize_one "$FORCED"
    done
    rm -f "$OUT/expect"
}

for part in "${@:-quick}"; do
    log=$part
    : >"$OUT/$log.log"
    case $part in
        doctor | sanitize) $part ;;
        fill) each fill_one "$SMALL"
            step fill-offline 60 make BUILD="$B" "$B/offline"
            step fill-bundle 60 "$B/warploom" bundle build -o "$B/offline.wlb" \
                head_dim=64 dtype=fp16 mask=none layout=bshd seq_q=64 lse=no ;;
        # In a root of libc, libsodium, libzstd, the driver and a bundle that fill made elsewhere.
        bundle) step bundle 60 python3 tests/offline.py gpu "$B/offline.wlb" ;;
        offline) [ -d "$OFFLINE" ] || { echo "no $OFFLINE: filled here"; each fill_one "$SMALL"; }
            each offline_one "$SMALL" ;;
        quick) step quick 280 python3 tests/gpu/check.py --quick $EXTRA ;;
        full) step full 570 python3 tests/gpu/check.py --table $EXTRA ;;
        both) step both 300 python3 tests/gpu/both.py $EXTRA ;;
        variants) step variants 200 python3 tests/gpu/variants.py right $EXTRA ;;
        speed) step speed 300 python3 tests/gpu/variants.py speed --out "$OUT/speed.json" $EXTRA ;;
        knobs) step knobs 570 python3 tests/gpu/check.py --knobs $EXTRA ;;
        names) step names 570 python3 tests/gpu/check.py --names "$NAMES" $EXTRA ;;
        tune) step tune 120 python3 tests/gpu/tune.py broken ;;
        search) WARPLOOM_CACHE_DIR=$TUNED step search 590 \
            python3 tests/gpu/tune.py search --seconds "${BUDGET:-30}" $EXTRA ;;
        kernels) python3 tests/bench/tuned.py --workload 1 >"$OUT/problems"
            WARPLOOM_CACHE_DIR=$TUNED step kernels 3000 \
                "$B/warploom" tune --compile-only --workload "$OUT/problems" ;;
        tuned) cp specs/tuned/h200.yaml "$OUT/h200.yaml"
            WARPLOOM_CACHE_DIR=$TUNED step tuned 590 python3 tests/bench/tuned.py \
                --budget "${BUDGET:-200}" --table "$OUT/h200.yaml" --rows "$OUT/rows.json" $EXTRA ;;
        bench) step bench 590 python3 tests/bench/bench.py --points "${POINTS:-36,24}" \
            --peers "${PEERS:-cudnn,fa2,fa3}" --seconds "${BUDGET:-480}" \
            --out "$OUT/${NAME:-h200}.json" $EXTRA ;;
        pick) step pick 590 python3 tests/bench/bench.py --candidates "$NAMES" \
            --points "${POINTS:-36}" --peers "${PEERS:-cudnn,fa3}" \
            --seconds "${BUDGET:-480}" --out "$OUT/${NAME:-pick}.json" $EXTRA ;;
        *) echo "visit.sh: no part $part" >&2; exit 2 ;;
    esac
done
if [ -n "$failed" ]; then echo "FAILED:$failed"; exit 1; fi
echo "all parts passed"
