/* tiles.c - which tiles a mask keeps none, all or some of: told from its text, against brute force.
   SPDX-License-Identifier: BSD-3-Clause

   tiles COUNT: COUNT random masks (of a fixed seed) and the ready ones of fwd, each at sizes, tiles
   and params drawn likewise. Pair by pair the masks are evaluated by runtime/formula.c, which
   shares nothing with the generator. No kept pair may be in a tile told empty, no dropped one in a
   tile told full; of a ready mask every tile must be told exactly, of the random ones 95 in a
   hundred. Ends with `N passed, N failed`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formula.h"
#include "gen.h"
#include "launch.h"

enum { BATCH = 250, READY_DRAWS = 200, LARGE_DRAWS = 12 };

static uint64_t seed = 20261201;
static int passed, failed;
static long tiles, loose; /* of the random masks */

static int any(int below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)below);
}
#define PICK(list) list[any((int)(sizeof list / sizeof *list))]

/* ---- random masks ---- */

static void put_scalar(wl_buf *b) {
    static const char *const some[] = {"a", "b", "seq_k", "head", "a - b", "2 * a"};
    if (any(7)) wl_buf_text(b, PICK(some));
    else wl_buf_printf(b, "%d", any(12));
}

static void put_linear(wl_buf *b) {
    static const char *const some[] = {"row", "col", "row - col", "col - row", "row + col",
                                       "2 * col", "row - 2 * col", "col + b", "row - a"};
    wl_buf_text(b, PICK(some));
}

static void put_condition(wl_buf *b, int depth);

static void put_whole(wl_buf *b, int depth) {
    static const char *const divisors[] = {"2", "3", "8", "c", "5"};
    int kind = any(10);
    if (!depth || kind < 5) {
        put_linear(b);
    } else if (kind < 7) {
        wl_buf_text(b, "(");
        put_linear(b);
        wl_buf_printf(b, ") %s %s", any(2) ? "//" : "%", PICK(divisors));
    } else if (kind == 7) {
        wl_buf_text(b, "abs(");
        put_linear(b);
        wl_buf_text(b, ")");
    } else if (kind == 8) {
        wl_buf_text(b, any(2) ? "min(" : "max(");
        put_whole(b, depth - 1);
        wl_buf_text(b, ", ");
        put_scalar(b);
        wl_buf_text(b, ")");
    } else {
        wl_buf_text(b, "select(");
        put_condition(b, 0);
        wl_buf_text(b, ", ");
        put_whole(b, depth - 1);
        wl_buf_text(b, ", ");
        put_linear(b);
        wl_buf_text(b, ")");
    }
}

static void put_condition(wl_buf *b, int depth) {
    static const char *const operators[] = {"<", "<=", ">", ">=", "<=", ">=", "==", "!="};
    int kind = any(10);
    if (!depth || kind < 4) {
        put_whole(b, 1);
        wl_buf_printf(b, " %s ", PICK(operators));
        if (any(3)) put_scalar(b);
        else put_linear(b);
    } else if (kind < 9) {
        wl_buf_text(b, "(");
        put_condition(b, depth - 1);
        wl_buf_text(b, kind < 7 ? " and " : " or ");
        put_condition(b, depth - 1);
        wl_buf_text(b, ")");
    } else {
        wl_buf_text(b, "not (");
        put_condition(b, depth - 1);
        wl_buf_text(b, ")");
    }
}

/* ---- one draw ---- */

typedef struct {
    const char *spec, *name, *text;
    int n_params;
    char (*param)[33];
    int low[WL_MAX_PARAMS], high[WL_MAX_PARAMS];
    bool ready;
} mask;

typedef struct {
    int seq_q, seq_k, tile_m, tile_n;
    double name[WL_F_params + WL_MAX_PARAMS]; /* of the formula */
} draw;

static draw drawn(const mask *m, bool large) {
    static const int small_m[] = {1, 2, 3, 4, 8, 16}, small_n[] = {1, 2, 4, 5, 8, 16};
    static const int large_m[] = {64, 128, 192, 256}, large_n[] = {64, 128};
    draw d = {.tile_m = large ? PICK(large_m) : PICK(small_m),
              .tile_n = large ? PICK(large_n) : PICK(small_n)};
    d.seq_q = 1 + any(large ? 500 : 39);
    d.seq_k = any(3) ? 1 + any(large ? 500 : 47) : d.seq_q;
    int head = any(4);
    const double names[WL_F_params] = {[WL_F_seq_q] = d.seq_q, [WL_F_seq_k] = d.seq_k,
                                       [WL_F_head] = head,     [WL_F_kv_head] = head / 2,
                                       [WL_F_heads] = 4,       [WL_F_kv_heads] = 2};
    memcpy(d.name, names, sizeof names);
    for (int i = 0; i < m->n_params; i++) {
        int most = large ? 300 : 40;
        if (m->high[i] < most) most = m->high[i];
        d.name[WL_F_params + i] = m->low[i] + any(most - m->low[i] + 1);
    }
    return d;
}

static void ask_tiles(wl_gen *gen, const mask *m, const draw *d, wl_buf *arg, wl_buf *out) {
    arg->size = out->size = 0;
    wl_buf_printf(arg, "%s %s %d %d seq_q=%d seq_k=%d head=%d kv_head=%d heads=4 kv_heads=2",
                  m->spec, m->name, d->tile_m, d->tile_n, d->seq_q, d->seq_k,
                  (int)d->name[WL_F_head], (int)d->name[WL_F_kv_head]);
    for (int i = 0; i < m->n_params; i++)
        wl_buf_printf(arg, " %s=%d", m->param[i], (int)d->name[WL_F_params + i]);
    if (wl_gen_call(gen, "tiles", arg->data, out)) wl_buf_text(out, wl_gen_error());
}

/* "." no pair of the tile is kept, "#" all are, "/" some. */
static char brute(const wl_formula *keep, draw *d, int row0, int col0) {
    int past = d->seq_k - d->seq_q, kept = 0, of = 0;
    for (int row = row0; row < row0 + d->tile_m && row < d->seq_q; row++)
        for (int col = col0; col < col0 + d->tile_n && col < d->seq_k; col++, of++) {
            d->name[WL_F_row] = row + past;
            d->name[WL_F_col] = col;
            kept += wl_formula_value(keep, d->name) == 1;
        }
    return kept == of ? '#' : kept ? '/' : '.';
}

static void check(wl_gen *gen, const mask *m, const wl_formula *keep, bool large) {
    static wl_buf arg, out;
    draw d = drawn(m, large);
    ask_tiles(gen, m, &d, &arg, &out);
    const char *told = out.data;
    long wrong = 0, unlike = 0;
    for (int row = 0; row < d.seq_q; row += d.tile_m, told += *told == '\n')
        for (int col = 0; col < d.seq_k; col += d.tile_n) {
            char want = brute(keep, &d, row, col), got = *told ? *told++ : '?';
            tiles += !m->ready;
            unlike += got != want;
            wrong += got != want && got != '/';
        }
    if (!m->ready) loose += unlike;
    bool good = !wrong && !*told && !(m->ready && unlike);
    good ? passed++ : failed++;
    if (!good && failed <= 20)
        printf("%s: %s: %ld tiles are told wrong, %ld not exactly\n%s", m->text, arg.data, wrong,
               unlike, out.data);
}

/* ---- all ---- */

static void need(bool holds, const char *what) {
    if (holds) return;
    printf("%s: %s%s\n", what, wl_gen_error(), message());
    exit(WL_EFAIL);
}

static void random_masks(int count) {
    static char params[3][33] = {"a", "b", "c"};
    char (*name)[16] = wl_alloc(BATCH * sizeof *name);
    wl_buf text[BATCH] = {{0}}, spec = {0};
    wl_gen *gen;
    wl_buf_text(&spec, "extends: fwd\nname: mine\nmasks:\n");
    for (int i = 0; i < count; i++) {
        do {
            text[i].size = 0;
            put_condition(&text[i], 1 + any(3));
        } while (text[i].size > 300);
        snprintf(name[i], sizeof name[i], "m%d", i);
        wl_buf_printf(&spec, "  %s: {keep: '%s', params: {a: 0, b: 0, c: {default: 1, from: 1}}}\n",
                      name[i], text[i].data);
    }
    need(!wl_gen_open(&gen) && !wl_gen_spec(gen, "mine.yaml", spec.data, spec.size),
         "random masks");
    for (int i = 0; i < count; i++) {
        const mask m = {"mine", name[i], text[i].data, 3, params, {0, 0, 1}, {40, 40, 9}, false};
        wl_formula *keep = wl_formula_open(m.text, params, 3);
        check(gen, &m, keep, false);
        wl_formula_close(keep);
        wl_buf_free(&text[i]);
    }
    wl_gen_close(gen);
    wl_buf_free(&spec);
    free(name);
}

static void ready_mask(wl_gen *gen, const char *name) {
    wl_buf record = {0};
    wl_launch *launch = wl_alloc(sizeof *launch);
    char *asked = wl_format("head_dim=64 dtype=bf16 mask=%s layout=bshd seq_q=64", name);
    need(!wl_gen_call(gen, "choose", asked, &record) && !wl_launch_parse(record.data, launch),
         name);
    mask m = {.spec = "fwd", .name = name, .text = launch->keep, .n_params = launch->n_params,
              .param = launch->param, .ready = true};
    for (int i = 0; i < m.n_params; i++) {
        m.low[i] = launch->range[i].least;
        m.high[i] = launch->range[i].most;
    }
    wl_formula *keep = wl_formula_open(m.text, m.param, m.n_params);
    /* What a mask with tensors keeps, these say: the simulator's cases look at that. */
    int draws = launch->n_tensors ? 0 : READY_DRAWS + LARGE_DRAWS;
    for (int i = 0; i < draws; i++) check(gen, &m, keep, i >= READY_DRAWS);
    wl_formula_close(keep);
    wl_buf_free(&record);
    free(launch), free(asked);
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 10000;
    wl_gen *gen;
    wl_buf names = {0};
    need(!wl_gen_open(&gen) && !wl_gen_call(gen, "masks", "fwd", &names), "fwd");
    for (char *rest = names.data, *name; (name = strsep(&rest, "\n"));)
        if (*name) ready_mask(gen, name);
    wl_gen_close(gen);
    wl_buf_free(&names);
    for (int done = 0; done < count; done += BATCH)
        random_masks(count - done < BATCH ? count - done : BATCH);
    loose * 20 <= tiles ? passed++ : failed++;
    printf("%ld of %ld tiles of random masks are taken for mixed: %.2f %%\n", loose, tiles,
           tiles ? 100 * (double)loose / (double)tiles : 0);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
