/* cli_findings.c - gathers the simulator's findings and tells where in the templates they are.
   SPDX-License-Identifier: BSD-3-Clause */
#include "cli_findings.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    cli_findings *list;
    const cli_origin *from;
    wl_buf map; /* of the last kernel asked for: a line FILE:LINE per line of source */
    char *mapped;
} taker;

/* Line `number` of the kernel's line map; NULL when there is none. */
static char *map_line(taker *t, const char *kernel, int number) {
    if (!t->mapped || strcmp(t->mapped, kernel)) {
        free(t->mapped);
        t->mapped = wl_copy(kernel);
        wl_buf_free(&t->map);
        if (wl_tools_ask(t->from->tools, "linemap", kernel, &t->map)) {
            wl_buf_free(&t->map); /* no generator here: the emitted file's own lines must do */
            clear_message();
        }
    }
    const char *line = t->map.data;
    for (int i = 1; line && i < number; i++) line = (line = strchr(line, '\n')) ? line + 1 : NULL;
    size_t size = line ? strcspn(line, "\n") : 0;
    return size ? wl_format("%.*s", (int)size, line) : NULL;
}

/* FILE:LINE for a line of the kernel's source. */
static char *place_of_line(taker *t, const char *kernel, int line) {
    if (t->from->source) return wl_format("%s:%d", t->from->source, line);
    char *mapped = map_line(t, kernel, line);
    return mapped ? mapped : wl_format("%s.cu:%d", kernel, line);
}

static char *place(taker *t, const char *kernel, const sim_finding *f) {
    if (t->from->ptx) return wl_format("%s:%d", t->from->ptx, f->ptx_line);
    if (!f->source_line) return wl_copy("");
    char *own = place_of_line(t, kernel, f->source_line);
    if (!f->caller_line) return own;
    char *caller = place_of_line(t, kernel, f->caller_line);
    char *both = wl_format("%s, called at %s", own, caller);
    free(own), free(caller);
    return both;
}

/* The finding's text, its "line N" replaced by FILE:LINE; that of a PTX file stays as it is. */
static char *text_of(taker *t, const char *kernel, const sim_finding *f) {
    wl_buf out = {0};
    const char *from = f->text, *at = from;
    while (!t->from->ptx && (at = strstr(at, "line "))) {
        char *end;
        bool of_ptx = at - f->text >= 4 && !memcmp(at - 4, "PTX ", 4);
        long line = strtol(at += 5, &end, 10);
        if (end == at || of_ptx) continue;
        char *where = place_of_line(t, kernel, (int)line);
        wl_buf_add(&out, from, (size_t)(at - 5 - from));
        wl_buf_text(&out, where);
        free(where);
        from = at = end;
    }
    wl_buf_text(&out, from);
    return out.data;
}

static cli_finding *known(cli_findings *list, const char *rule, const char *where) {
    for (int i = 0; i < list->n; i++) {
        cli_finding *f = &list->finding[i];
        if (!strcmp(f->rule, rule) && !strcmp(f->where, where)) return f;
    }
    return NULL;
}

/* Adds to the finding of that rule and place; of a new one the text and the PTX line are kept.
   Takes `where` and `text` over. */
static void add(cli_findings *list, const char *rule, char *where, char *text,
                const sim_finding *from) {
    cli_finding *f = known(list, rule, where);
    if (f) {
        free(where), free(text);
    } else {
        list->finding = wl_grow(list->finding, (size_t)(list->n + 1) * sizeof *f);
        f = &list->finding[list->n++];
        *f = (cli_finding){.rule = wl_copy(rule),
                           .where = where,
                           .text = text,
                           .ptx_line = from->ptx_line};
    }
    if (f->last != list->launches) f->launches++;
    f->last = list->launches;
    f->count += from->count;
}

static void see(void *user, const char *kernel, const sim_finding *finding) {
    taker *t = user;
    add(t->list, finding->rule, place(t, kernel, finding), text_of(t, kernel, finding), finding);
}

void cli_findings_take(cli_findings *list, const cli_origin *origin) {
    taker t = {.list = list, .from = origin};
    list->launches++;
    origin->driver->sim_device_findings(see, &t);
    wl_buf_free(&t.map);
    free(t.mapped);
}

wl_status cli_schedules(const cli_args *args, uint64_t otherwise, uint64_t *out) {
    const char *given = args->value[OPTION_SCHEDULES];
    *out = otherwise;
    wl_status status = given ? cli_number(args, OPTION_SCHEDULES, out) : WL_OK;
    if (!status && (*out < 1 || *out > 1000000))
        status = fail(WL_EINVAL, "--schedules: expected 1 to 1000000, got '%s'", given);
    return status;
}

void cli_schedule(const wl_driver *driver, uint64_t number) {
    sim_device_settings settings;
    driver->sim_device_get(&settings);
    settings.options.check = true;
    settings.options.order = number == 0 ? SIM_EAGER : number == 1 ? SIM_LAZY : SIM_RANDOM;
    settings.options.seed = number;
    driver->sim_device_set(&settings);
}

void cli_findings_add(cli_findings *list, const char *rule, const char *text) {
    const sim_finding own = {.count = 1};
    add(list, rule, wl_copy(""), wl_copy(text), &own);
}

void cli_findings_print(const cli_findings *list, bool json) {
    static const char *const column[] = {"rule",      "where",  "#ptx_line",
                                         "#launches", "#count", "text", NULL};
    cli_rows rows = {.column = column};
    for (int i = 0; i < list->n; i++) {
        const cli_finding *f = &list->finding[i];
        cli_cell(&rows, "%s", f->rule);
        cli_cell(&rows, "%s", f->where);
        cli_cell(&rows, "%d", f->ptx_line);
        cli_cell(&rows, "%d", f->launches);
        cli_cell(&rows, "%lld", f->count);
        cli_cell(&rows, "%s", f->text);
    }
    cli_rows_print(&rows, json, true);
    cli_rows_free(&rows);
}

wl_status cli_findings_fail(const cli_findings *list, const char *name) {
    wl_buf text = {0};
    for (int i = 0; i < list->n; i++) {
        const cli_finding *f = &list->finding[i];
        wl_buf_printf(&text, "\n%s%s%s: %s (PTX line %d, %lld times)", f->where,
                      *f->where ? ": " : "", f->rule, f->text, f->ptx_line, f->count);
    }
    wl_status status = fail(WL_EVERIFY, "%s: %d finding%s%s", name, list->n,
                            list->n == 1 ? "" : "s", text.data);
    wl_buf_free(&text);
    return status;
}

void cli_findings_free(cli_findings *list) {
    for (int i = 0; i < list->n; i++) {
        const cli_finding *f = &list->finding[i];
        free(f->rule), free(f->where), free(f->text);
    }
    free(list->finding);
    *list = (cli_findings){0};
}
