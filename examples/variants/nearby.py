# nearby.py - nearby.yaml called from Python; WARPLOOM_SPECS names that file.
# SPDX-License-Identifier: BSD-3-Clause
import warploom


def nearby(q, k, v, doc, fade=0.05):
    return warploom.forward(q, k, v, variant="nearby", mask="mine", score="fading",
                            score_args=(fade,), tensors={"doc": doc})
