/* json.h - JSON text as a tree that knows where each value stands.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_JSON_H
#define WL_JSON_H

#include "base.h"

typedef enum { JSON_NULL, JSON_TRUE, JSON_FALSE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT }
    json_kind;

typedef struct json {
    json_kind kind;
    int line, column;  /* where it begins; columns count bytes, from 1 */
    char *key;         /* in an object; NULL elsewhere */
    char *text;        /* of a string, unescaped, or of a number as it stands */
    struct json *next; /* in its array or object */
    struct json *child;
    int n; /* of children */
} json;

/* RFC 8259, strictly: UTF-8, no comments, no key twice, nothing behind the value; at most 64 deep.
   EINVAL: "FILE:LINE:COLUMN: what was expected". */
wl_status json_parse(const char *file, const char *text, size_t size, json **out);
void json_free(json *value);
/* The value of a key; NULL if the object has none. */
const json *json_find(const json *object, const char *key);
/* "an object", "a number", …: for messages. */
const char *json_kind_name(json_kind kind);

#endif
