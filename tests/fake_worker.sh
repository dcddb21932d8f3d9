#!/bin/sh
# fake_worker.sh - a tune-worker: what it answers for a candidate is in the candidate's name.
# SPDX-License-Identifier: BSD-3-Clause
#
# A name ends with _US, its time; else its length counts. FAKE_WORKER_LOG: requests are appended
# there. FAKE_WORKER_OPEN: what it does instead of answering `problem`; FAKE_WORKER_FAST,
# FAKE_WORKER_CRASH: names that are the fastest, and that crash.
echo "start $*" >> "$FAKE_WORKER_LOG"
while read -r verb name word mb; do
    echo "$verb $name $word $mb" >> "$FAKE_WORKER_LOG"
    case "$verb $name" in
    "problem "*) eval "${FAKE_WORKER_OPEN:-echo good}" ;;
    "compile "*rejected*) echo "bad spills" ;;
    "compile "*nvrtc*) kill -ABRT $$ ;;
    "compile "*) echo good ;;
    "seconds "*) echo "seconds time 1.25" ;;
    "check "*wrong*) echo "bad norm ratio 0.5" ;;
    "check "*crash* | "check $FAKE_WORKER_CRASH") kill -SEGV $$ ;;
    "check "*lost*) echo "crash CUDA_ERROR_ILLEGAL_ADDRESS" ;;
    "check "*) echo good ;;
    "time "*hang*) exec sleep 100 ;;
    "time "*silly*) echo "time flies" ;;
    *" $FAKE_WORKER_FAST") echo "time 7 14 1800" ;;
    *)
        us=${name##*_}
        case "$us" in *[!0-9]*) us=${#name} ;; esac
        echo "time $((us + (32 - mb) / 8)) $((2 * us)) 1800"
        ;;
    esac
done
