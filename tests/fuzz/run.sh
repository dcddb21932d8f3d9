# run.sh SECONDS BUILD - runs every fuzz target from its corpus, all of them in that time together.
# SPDX-License-Identifier: BSD-3-Clause
set -eu
seconds=$1 build=$2
n=$(ls tests/fuzz/fuzz_*.c | wc -l)
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    part=${name#fuzz_}
    mkdir -p "$build/fuzz/new_$part"
    each=$(((seconds + n - 1) / n)) # 0 would be for ever
    echo "$name: $each s"
    "$build/fuzz/$name" -max_total_time=$each -print_final_stats=1 -timeout=20 \
        -rss_limit_mb=4096 -max_len=65536 -artifact_prefix="$build/fuzz/" \
        "$build/fuzz/new_$part" "tests/fuzz/corpus_$part" >"$build/fuzz/$name.log" 2>&1 || {
        tail -n 40 "$build/fuzz/$name.log"
        exit 1
    }
    grep -E 'DONE|Done|stat::new_units|stat::peak' "$build/fuzz/$name.log"
done
