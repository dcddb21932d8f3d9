/* kernel.c - get: a choice and its images from the cache, else from the generator and NVRTC.
   SPDX-License-Identifier: BSD-3-Clause */
#include "kernel.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_flight.h"
#include "tuned.h"

#define SCHEMA "warploom choice 1" /* counts up when the text of a choice changes */
#define PTX_ARCH "compute_90a"     /* NVRTC's word for WL_ARCH as PTX */

extern const char wl_generator_digest[65]; /* build/digest.c */

/* ---- a choice ---- */

/* Behind what is quoted at `at`: a string or a character. */
static char *quoted_end(char *at) {
    char quote = *at++;
    while (*at && *at != quote && *at != '\n') at += *at == '\\' && at[1] ? 2 : 1;
    return at + (*at == quote);
}

/* A copy with blanks in place of comments. */
static char *without_comments(const char *text) {
    char *code = wl_copy(text);
    for (char *at = code; *at;) {
        bool line = !strncmp(at, "//", 2), block = !strncmp(at, "/*", 2);
        char *end = at + 1, *close = block ? strstr(at + 2, "*/") : NULL;
        if (line) end = at + strcspn(at, "\n");
        else if (block) end = close ? close + 2 : at + strlen(at);
        else if (*at == '"' || *at == '\'') end = quoted_end(at);
        if (line || block) memset(at, ' ', (size_t)(end - at));
        at = end;
    }
    return code;
}

/* The entry of a hand-edited source: the first name before a '(' after __global__ that does not
   start with "__" (such as __launch_bounds__). */
static wl_status find_entry(const char *file, const char *text, char entry[128]) {
    char *code = without_comments(text);
    wl_status status = WL_OK;
    const char *at = strstr(code, "__global__");
    while (at && *at) {
        size_t size = 0;
        while (isalnum((unsigned char)at[size]) || at[size] == '_') size++;
        if (size && size < 128 && at[size] == '(' && strncmp(at, "__", 2)) {
            memcpy(entry, at, size);
            entry[size] = '\0';
            break;
        }
        at += size ? size : 1;
    }
    if (!at || !*at)
        status =
            fail(WL_EINVAL, "%s: no kernel: expected extern \"C\" __global__ void NAME(…)", file);
    free(code);
    return status;
}

/* The question as the generator reads it: `launch NAME` (of a tuned record: with its section), or
   `choose PROBLEM` with sizes rounded, so that the answer depends on nothing that the key leaves
   out. */
typedef struct {
    const char *verb;
    wl_buf arg;
    char entry[128];
    char by[256]; /* what a tuned record says; "" when none was asked */
    wl_buf tuned; /* that record's text */
    wl_hash tuned_key;
    wl_hash key;    /* of the choice, without the user's specs: wl_store_get */
    wl_buf text;    /* the choice's, when there is one */
    wl_buf *fields; /* what the key is made of; NULL: not asked */
} question;

static void forget(question *q) {
    wl_buf_free(&q->arg), wl_buf_free(&q->tuned), wl_buf_free(&q->text);
}

/* No GPU's name and no driver in it: a cache filled without a GPU serves one that has it. */
static wl_status choice_key(wl_tools *tools, const wl_request *request, question *q) {
    wl_hasher hasher;
    wl_hash_begin(&hasher);
    hasher.fields = q->fields;
    wl_hash_named(&hasher, "schema", SCHEMA);
    wl_hash_named(&hasher, "generator", wl_generator_digest);
    wl_status status = wl_tools_read_specs(tools);
    if (q->fields) wl_tools_note_specs(tools, &hasher);
    wl_hash_named(&hasher, "question", q->verb);
    wl_hash_named(&hasher, *q->verb == 'l' ? "name" : "problem", q->arg.data);
    wl_hash_named(&hasher, "arch",
                  request->ptx ? PTX_ARCH : request->arch ? request->arch : WL_ARCH);
    q->key = wl_hash_end(&hasher);
    return status;
}

static void tell_tuned(const wl_tuned *t, char by[256]) {
    const wl_tuned_time *best = wl_tuned_winner(t), *next = wl_tuned_runner_up(t);
    int n = snprintf(by, 256, "tuned here, %s", t->date);
    if (best) n += snprintf(by + n, 256 - (size_t)n, ": %.1f us", best->warm_us);
    if (best && next)
        snprintf(by + n, 256 - (size_t)n, "; next %s section_mb=%lld, %+.1f %%", next->name,
                 (long long)next->section_mb, 100 * (next->warm_us / best->warm_us - 1));
}

/* The same problem with LSE; false when it asks for that itself. */
static bool with_lse(const wl_problem *problem, wl_problem *out) {
    *out = *problem;
    strcpy(out->word[WL_P_lse].name, "yes");
    return !strcmp(problem->word[WL_P_lse].name, "no");
}

/* Takes a record unless it is damaged or of another driver's times; else *why. NVRTC is not opened
   to compare it: what it makes is what the record's times are of, or it is in another kernel's key.
 */
static bool take_record(const wl_device *device, question *q, char why[256]) {
    wl_tuned tuned;
    if (!wl_tuned_parse(q->tuned.data, &tuned)) {
        strcpy(why, "its tuned record cannot be read");
        return false;
    }
    const char *stale = wl_tuned_stale(&tuned, device->driver_version, NULL);
    if (stale) snprintf(why, 256, "%s", stale);
    if (!stale) {
        q->verb = "launch";
        wl_buf_printf(&q->arg, "%s section_mb=%lld", tuned.name, (long long)tuned.section_mb);
        tell_tuned(&tuned, q->by);
    }
    wl_tuned_free(&tuned);
    return !stale;
}

static wl_status ask_record(wl_tools *tools, const wl_request *request, const wl_problem *problem,
                            question *q) {
    wl_store *store = wl_tools_store(tools);
    char why[256];
    wl_status status = wl_tuned_base_key(tools, problem, request->device, &q->tuned_key);
    for (int layer = 0; !status; layer++) {
        q->tuned.size = 0;
        if (!wl_store_get(store, WL_CACHE_TUNED, &q->tuned_key, &layer, &q->tuned)) break;
        if (take_record(request->device, q, why)) break;
        wl_store_refuse(store, WL_CACHE_TUNED, layer, why);
    }
    return status;
}

/* What was measured with LSE serves calls without it, too. */
static wl_status ask_tuned(wl_tools *tools, const wl_request *request, question *q) {
    wl_problem other;
    wl_status status = ask_record(tools, request, request->problem, q);
    if (!status && !*q->by && with_lse(request->problem, &other))
        status = ask_record(tools, request, &other, q);
    return status;
}

static wl_status pose(wl_tools *tools, const wl_request *request, question *out) {
    const char *name = request->name;
    wl_status status = WL_OK;
    *out = (question){.verb = "choose"};
    if (request->text) {
        status = find_entry(request->file, request->text, out->entry);
        if (status) return status;
        name = out->entry;
    }
    if (name) {
        out->verb = "launch";
        wl_buf_text(&out->arg, name);
    } else {
        if (request->device) status = ask_tuned(tools, request, out);
        if (!*out->by) wl_problem_bucket(request->problem, &out->arg);
    }
    return status ? status : choice_key(tools, request, out);
}

/* A choice on disk: `kernelkey HEX` per kernel, `nvrtc IDENTITY`, the launch record. */
static bool read_choice(const char *text, wl_made *out) {
    char hex[2 * WL_HASH_BYTES + 1];
    int n = 0;
    while (n < WL_MAX_KERNELS && sscanf(text, "kernelkey %64s", hex) == 1) {
        if (!wl_hash_parse(hex, &out->key[n++])) return false;
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    if (strncmp(text, "nvrtc ", 6)) return false;
    text += strcspn(text, "\n");
    return *text && !wl_launch_parse(text + 1, &out->launch) && out->launch.n_kernels == n;
}

/* An image from the layers; one for another machine is a miss. */
static bool find_image(wl_tools *tools, const wl_hash *key, const char *arch, wl_buf *image) {
    wl_store *store = wl_tools_store(tools);
    for (int layer = 0;; layer++) {
        image->size = 0;
        if (!wl_store_get(store, WL_CACHE_KERNEL, key, &layer, image)) return false;
        const char *why = wl_store_unfit(store, image, arch);
        if (!why) return true;
        wl_store_refuse(store, WL_CACHE_KERNEL, layer, why);
    }
}

/* The symbol of a kernel that no layer has; NULL. */
static const char *find_images(wl_tools *tools, const wl_request *request, wl_made *made) {
    const char *arch = request->ptx ? PTX_ARCH : made->launch.arch;
    for (int i = 0; i < made->launch.n_kernels; i++)
        if (!find_image(tools, &made->key[i], arch, &made->compiled[i].image))
            return made->launch.kernel[i].symbol;
    return NULL;
}

/* The layer has a choice: is it of use? */
static bool take_choice(wl_tools *tools, const wl_request *request, const question *q, int layer,
                        bool images, wl_made *out) {
    wl_store *store = wl_tools_store(tools);
    wl_buf why = {0};
    const char *lacking = NULL;
    bool good = q->text.size && read_choice(q->text.data, out);
    if (!good) wl_buf_text(&why, "its choice cannot be read");
    else if (images && (lacking = find_images(tools, request, out))) {
        wl_buf_printf(&why, "it has the choice, but %s is nowhere (", lacking);
        wl_store_report(store, WL_CACHE_KERNEL, &why);
        wl_buf_text(&why, ")");
    }
    if (why.size) wl_store_refuse(store, WL_CACHE_CHOICE, layer, why.data);
    out->layer = wl_store_layer(store, layer);
    clear_message();
    wl_buf_free(&why);
    return good && !lacking;
}

static bool find_choice(wl_tools *tools, const wl_request *request, question *q, bool images,
                        wl_made *out) {
    for (int layer = 0;; layer++) {
        q->text.size = 0;
        if (!wl_store_get(wl_tools_store(tools), WL_CACHE_CHOICE, &q->key, &layer, &q->text))
            return false;
        if (take_choice(tools, request, q, layer, images, out)) return true;
    }
}

/* The choice of a question, with its images when they are wanted; with JIT off, what was made for
   calls with LSE serves those without: then it becomes the question. */
static bool find_answer(wl_tools *tools, const wl_request *request, question *q, bool images,
                        wl_made *out) {
    question other = {.verb = q->verb};
    wl_problem problem;
    bool found = find_choice(tools, request, q, images, out);
    if (found || wl_tools_jit(tools) || *q->verb == 'l' || !with_lse(request->problem, &problem))
        return found;
    wl_problem_bucket(&problem, &other.arg);
    found = !choice_key(tools, request, &other) &&
            find_choice(tools, request, &other, images, out);
    if (found) {
        forget(q);
        *q = other;
    } else {
        forget(&other);
    }
    return found;
}

/* A miss that may not be compiled: what each layer said, and the remedy. */
static wl_status miss(wl_tools *tools, const wl_request *request, const question *q) {
    wl_buf what = {0}, line = {0}, layers = {0};
    if (*q->verb == 'l' && !*q->by) wl_buf_text(&what, q->arg.data);
    else wl_problem_print(request->problem, &what);
    if (*q->verb == 'l' && !*q->by) wl_buf_text(&line, q->arg.data);
    else wl_problem_bucket(request->problem, &line);
    wl_store_report(wl_tools_store(tools), WL_CACHE_CHOICE, &layers);
    if (!request->text) wl_store_missed(wl_tools_store(tools), line.data);
    wl_status status = fail(
        WL_ECOMPILE,
        "no kernel for %s: memory: not loaded; %s; JIT: off. For a bundle, add the line `%s` to "
        "its workload; for this cache, run `warploom compile \"%s\"` on a machine with NVRTC; or "
        "set WARPLOOM_JIT=on",
        what.data, request->text ? "a hand-edited source is in no layer" : layers.data, line.data,
        line.data);
    wl_buf_free(&what), wl_buf_free(&line), wl_buf_free(&layers);
    return status;
}

/* The record is for this device and problem; a tuned one says who chose it. */
static wl_status check_record(const wl_request *request, const question *q, wl_launch *launch) {
    if (*q->by) memcpy(launch->by, q->by, sizeof launch->by);
    if (request->arch && strcmp(request->arch, launch->arch))
        return fail(WL_EDEVICE, "kernel %s is for %s, and this device is %s", launch->choice,
                    launch->arch, request->arch);
    return request->problem ? wl_launch_fits(launch, request->problem) : WL_OK;
}

/* The launch record from the generator; its text is kept for the choice. */
static wl_status generate(wl_tools *tools, const wl_request *request, const question *q,
                          wl_buf *text, wl_launch *out) {
    if (!wl_tools_jit(tools) && request->fresh)
        return fail(WL_ECOMPILE, "%s is to be compiled anew, and JIT is off: set WARPLOOM_JIT=on",
                    q->arg.data);
    if (!wl_tools_jit(tools)) return miss(tools, request, q);
    wl_status status = wl_tools_ask(tools, q->verb, q->arg.data, text);
    return status ? status : wl_launch_parse(text->data, out);
}

static wl_status choose(wl_tools *tools, const wl_request *request, wl_launch *out,
                        const char **layer) {
    question q;
    wl_buf text = {0};
    wl_made made = {.layer = "cache"};
    wl_status status = pose(tools, request, &q);
    if (!status && !find_answer(tools, request, &q, false, &made)) {
        made.layer = "jit";
        status = generate(tools, request, &q, &text, &made.launch);
    }
    if (!status) status = check_record(request, &q, &made.launch);
    *out = made.launch;
    if (layer) *layer = made.layer;
    forget(&q);
    wl_buf_free(&text);
    return status;
}

/* The first candidate of the list that is not blocked here; false when there is none. */
static bool next_of_list(wl_tools *tools, const wl_request *request, const wl_buf *blocks,
                         char name[128]) {
    wl_buf words = {0}, names = {0};
    bool found = false;
    wl_problem_print(request->problem, &words);
    if (wl_tools_ask(tools, "list", words.data, &names)) clear_message();
    for (char *rest = names.data, *line; !found && (line = strsep(&rest, "\n"));) {
        found = *line && strlen(line) < 128 &&
                !wl_tuned_find_block(blocks, line, request->device->name, NULL);
        if (found) strcpy(name, line);
    }
    wl_buf_free(&words), wl_buf_free(&names);
    return found;
}

/* Is the choice one that crashed or hung here when it was measured? Then *out asks for the next
   one. Without a blocklist it costs nothing. */
static bool passed_over(wl_tools *tools, const wl_request *request, char name[128],
                        wl_request *out) {
    wl_buf blocks = {0};
    bool asked = request->device && !request->name && !request->text;
    if (asked) wl_tuned_read_blocks(wl_tools_cache(tools), &blocks);
    if (!blocks.size) {
        wl_buf_free(&blocks);
        return false;
    }
    wl_launch *launch = wl_alloc(sizeof *launch);
    wl_status status = choose(tools, request, launch, NULL);
    bool over = !status &&
                wl_tuned_find_block(&blocks, launch->choice, request->device->name, NULL) &&
                next_of_list(tools, request, &blocks, name);
    wl_buf_free(&blocks);
    if (status) clear_message();
    free(launch);
    *out = *request;
    out->name = name;
    return over;
}

wl_status wl_kernel_choose(wl_tools *tools, const wl_request *request, wl_launch *out,
                           const char **layer) {
    char name[128];
    wl_request own;
    bool over = passed_over(tools, request, name, &own);
    return choose(tools, over ? &own : request, out, layer);
}

/* ---- making ---- */

/* The image under its key: of all threads and processes one compiles it, the others wait for it and
   find it in the cache. */
static wl_status compile_once(wl_tools *tools, const wl_request *request, const wl_nvrtc *nvrtc,
                              const wl_compile_input *in, const wl_hash *key, wl_compiled *out) {
    wl_cache *cache = wl_tools_cache(tools);
    wl_flight_plan plan = {.name = in->name};
    if (!strcmp(wl_cache_mode(cache), "rw")) plan.place = wl_cache_dir(cache);
    wl_tools_log(tools, &plan.log, &plan.user);
    wl_flight *flight = wl_flight_begin(key, &plan, &out->image);
    wl_status status = WL_OK;
    if (!flight || (!request->fresh && find_image(tools, key, in->arch, &out->image))) goto done;
    wl_compiled_free(out);
    status = wl_compile(nvrtc, in, out);
    if (!status) wl_cache_put(cache, WL_CACHE_KERNEL, key, out->image.data, out->image.size);
done:
    if (flight) wl_flight_land(flight, status ? NULL : &out->image);
    return status;
}

/* What kernel i of a launch is compiled from. */
typedef struct {
    wl_compile_input in;
    const wl_nvrtc *nvrtc;
    wl_buf source, map;
    char *name;
} origin;

static wl_status find_origin(wl_tools *tools, const wl_request *request, const wl_launch *launch,
                            int i, origin *out) {
    const char *symbol = launch->kernel[i].symbol;
    *out = (origin){.name = wl_format("%s.cu", symbol)};
    out->in = (wl_compile_input){.name = request->text ? request->file : out->name,
                                 .kernel = symbol,
                                 .arch = request->ptx ? PTX_ARCH : launch->arch,
                                 .lenient = request->text != NULL};
    wl_status status = wl_tools_compiler(tools, &out->nvrtc, &out->in);
    if (!status && !request->text) status = wl_tools_ask(tools, "source", symbol, &out->source);
    if (!status && !request->text) status = wl_tools_ask(tools, "linemap", symbol, &out->map);
    out->in.source = request->text ? request->text : out->source.data;
    out->in.linemap = request->text ? NULL : out->map.data;
    return status;
}

static void origin_free(origin *t) {
    wl_buf_free(&t->source);
    wl_buf_free(&t->map);
    free(t->name);
}

/* Image i of made: from the cache under its source's key, else compiled and put there. */
static wl_status make_image(wl_tools *tools, const wl_request *request, wl_made *made, int i,
                            const char **identity) {
    wl_compiled *out = &made->compiled[i];
    origin t;
    wl_status status = find_origin(tools, request, &made->launch, i, &t);
    if (!status) {
        made->key[i] = wl_compile_key(&t.in, t.nvrtc, NULL);
        *identity = t.nvrtc->identity;
    }
    if (!status && (request->fresh || !find_image(tools, &made->key[i], t.in.arch, &out->image)))
        status = compile_once(tools, request, t.nvrtc, &t.in, &made->key[i], out);
    origin_free(&t);
    return status;
}

wl_status wl_kernel_keys(wl_tools *tools, const wl_request *request, wl_hash keys[2],
                         wl_buf fields[2]) {
    question q;
    wl_launch *launch = wl_alloc(sizeof *launch);
    wl_status status = pose(tools, request, &q);
    q.fields = &fields[0];
    if (!status) status = choice_key(tools, request, &q);
    keys[0] = wl_store_cache_key(wl_tools_store(tools), WL_CACHE_CHOICE, &q.key);
    forget(&q);
    if (!status) status = choose(tools, request, launch, NULL);
    if (!status) {
        origin t;
        status = find_origin(tools, request, launch, 0, &t);
        if (!status) keys[1] = wl_compile_key(&t.in, t.nvrtc, &fields[1]);
        origin_free(&t);
    }
    free(launch);
    return status;
}

static void put_choice(wl_tools *tools, question *q, const wl_made *made, const char *identity,
                       const char *record) {
    char hex[2 * WL_HASH_BYTES + 1];
    q->text.size = 0;
    for (int i = 0; i < made->launch.n_kernels; i++) {
        wl_hash_hex(&made->key[i], hex);
        wl_buf_printf(&q->text, "kernelkey %s\n", hex);
    }
    wl_buf_printf(&q->text, "nvrtc %s\n%s", identity, record);
    wl_store_put(wl_tools_store(tools), WL_CACHE_CHOICE, &q->key, q->text.data, q->text.size);
}

static wl_status make(wl_tools *tools, const wl_request *request, question *q, wl_made *out) {
    wl_buf record = {0};
    const char *identity = "";
    out->layer = "jit";
    wl_status status = generate(tools, request, q, &record, &out->launch);
    if (!status) status = check_record(request, q, &out->launch);
    if (!status && request->text && out->launch.n_kernels > 1)
        status = fail(WL_EINVAL,
                      "%s: %s launches %d kernels; a hand-edited source replaces the only one",
                      request->file, out->launch.choice, out->launch.n_kernels);
    for (int i = 0; i < out->launch.n_kernels && !status; i++)
        status = make_image(tools, request, out, i, &identity);
    if (!status && !request->text) put_choice(tools, q, out, identity, record.data);
    wl_buf_free(&record);
    return status;
}

/* Tells who collects it what was used. */
static void tell_used(wl_tools *tools, const wl_request *request, const question *q,
                      const wl_made *made) {
    wl_store *store = wl_tools_store(tools);
    wl_buf what = {0};
    if (*q->by) wl_problem_bucket(request->problem, &what);
    if (*q->by) wl_buf_printf(&what, " on %s", request->device->name);
    if (*q->by)
        wl_store_used(store, &(wl_entry){WL_CACHE_TUNED, q->tuned_key, what.data, q->tuned.data,
                                         q->tuned.size});
    wl_store_used(store, &(wl_entry){WL_CACHE_CHOICE, q->key, q->arg.data, q->text.data,
                                     q->text.size});
    for (int i = 0; i < made->launch.n_kernels; i++) {
        const wl_buf *image = &made->compiled[i].image;
        wl_store_used(store, &(wl_entry){WL_CACHE_KERNEL, made->key[i],
                                         made->launch.kernel[i].symbol, image->data, image->size});
    }
    wl_buf_free(&what);
}

wl_status wl_kernel_get(wl_tools *tools, const wl_request *request, wl_made *out) {
    question q;
    char name[128];
    wl_request next;
    if (passed_over(tools, request, name, &next)) return wl_kernel_get(tools, &next, out);
    *out = (wl_made){.layer = "jit"};
    wl_status status = pose(tools, request, &q);
    bool found = !status && !request->fresh && !request->text &&
                 find_answer(tools, request, &q, true, out);
    if (!status && !found && *q.by && !wl_tools_jit(tools)) { /* then what `compile` made will do */
        wl_request own = *request;
        own.device = NULL;
        forget(&q);
        wl_made_free(out);
        return wl_kernel_get(tools, &own, out);
    }
    if (!status)
        status = found ? check_record(request, &q, &out->launch) : make(tools, request, &q, out);
    if (!status && !request->text) tell_used(tools, request, &q, out);
    forget(&q);
    if (status) wl_made_free(out);
    return status;
}

bool wl_kernel_cached(wl_tools *tools, const wl_request *request) {
    question q;
    wl_made *made = wl_alloc(sizeof *made);
    bool found = !pose(tools, request, &q) && find_answer(tools, request, &q, true, made);
    forget(&q);
    wl_made_free(made);
    free(made);
    return found;
}

wl_status wl_kernel_layers(wl_tools *tools, const wl_request *request) {
    wl_store *store = wl_tools_store(tools);
    question q;
    wl_made *made = wl_alloc(sizeof *made);
    wl_status status = pose(tools, request, &q);
    for (int layer = 0; !status; layer++) {
        q.text.size = 0;
        if (!wl_store_get(store, WL_CACHE_CHOICE, &q.key, &layer, &q.text)) break;
        if (take_choice(tools, request, &q, layer, true, made))
            wl_store_refuse(store, WL_CACHE_CHOICE, layer, "has it");
        wl_made_free(made);
    }
    forget(&q);
    free(made);
    return status;
}

void wl_made_free(wl_made *made) {
    for (int i = 0; i < WL_MAX_KERNELS; i++) wl_compiled_free(&made->compiled[i]);
}

wl_status wl_kernel_compile(wl_tools *tools, const wl_request *request, char entry[128],
                            wl_compiled *out) {
    const wl_nvrtc *nvrtc;
    wl_compile_input in = {.name = request->file,
                           .source = request->text,
                           .kernel = entry,
                           .arch = request->ptx ? PTX_ARCH : WL_ARCH,
                           .lenient = true};
    wl_status status = find_entry(request->file, request->text, entry);
    if (!status) status = wl_tools_compiler(tools, &nvrtc, &in);
    return status ? status : wl_compile(nvrtc, &in, out);
}
