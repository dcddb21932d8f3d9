# run.sh SECONDS BUILD - runs every fuzz target (or those in TARGETS) from its corpus, all at once,
# and appends a row for each to LOG.md.
# SPDX-License-Identifier: BSD-3-Clause
set -u
seconds=$1 build=$2 failed=
targets=${TARGETS:-$(cd tests/fuzz && ls fuzz_*.c | sed 's/^fuzz_\(.*\)\.c$/\1/')}
for t in $targets; do
    mkdir -p "$build/fuzz/new_$t"
    "$build/fuzz/fuzz_$t" -max_total_time="$seconds" -print_final_stats=1 -timeout=60 \
        -rss_limit_mb=4096 -max_len=65536 -artifact_prefix="$build/fuzz/${t}_" \
        "$build/fuzz/new_$t" "tests/fuzz/corpus_$t" >"$build/fuzz/$t.log" 2>&1 &
    eval "pid_$t=$!"
done
for t in $targets; do
    eval "pid=\$pid_$t"
    if wait "$pid"; then found=nothing; else found="see below" failed="$failed $t"; fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/fuzz/$t.log")
    size=$(find "$build/fuzz/new_$t" "tests/fuzz/corpus_$t" -type f | wc -l)
    edges=$(sed -n 's/.*cov: \([0-9]*\) .*/\1/p' "$build/fuzz/$t.log" | tail -n 1)
    row="| $(date -u +%F) | \`fuzz_$t\` | $seconds | ${runs:-?} | ${edges:-?} | $size | $found |"
    echo "$row" | tee -a tests/fuzz/LOG.md
done
for t in $failed; do tail -n 30 "$build/fuzz/$t.log"; done
[ -z "$failed" ]
