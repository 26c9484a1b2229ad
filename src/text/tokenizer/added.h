/* added.h - tokens that are found in the text itself, before it is cut into words.
 *
 * Such a token is a string with an id and flags. The leftmost match wins, and of those that begin
 * at one place the longest. Tokens with `normalized` are looked for in normalized text, the
 * others before normalization, so there are two sets.
 *
 * Threads: immutable once sealed. */
#ifndef SH_TEXT_TOKENIZER_ADDED_H
#define SH_TEXT_TOKENIZER_ADDED_H

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    sh_str content;
    sh_str shown; /* what stands for it when ids become text: the content, normalized if it is */
    int32_t id;
    bool special;     /* left out of decoded text on request */
    bool lstrip;      /* takes the white space before it along */
    bool rstrip;      /* and behind it */
    bool single_word; /* only where no letter or digit touches it */
    bool normalized;
} sh_added_token;

typedef struct sh_added_trie sh_added_trie;

typedef struct {
    sh_arena arena;
    sh_added_token *tokens;        /* by id, once sealed */
    const sh_added_token **sorted; /* by content */
    size_t count;
    size_t cap;
    sh_added_trie *raw;
    sh_added_trie *normalized;
} sh_added;

/* Copies the strings; a token without content is left out. */
void sh_added_add(sh_added *added, const sh_added_token *token);

/* Builds the sets; afterwards nothing is added. Fails when an id has two contents, or a content
 * two ids. */
SH_MUST_CHECK sh_status sh_added_seal(sh_added *added, sh_err *err);
void sh_added_reset(sh_added *added);

/* NULL when there is none. */
const sh_added_token *sh_added_by_id(const sh_added *added, int32_t id);
const sh_added_token *sh_added_by_content(const sh_added *added, sh_str content);

/* A walk over the tokens in a text. Set trie, text and skip_special, the rest is zero. */
typedef struct {
    const sh_added_trie *trie;
    sh_str text;
    bool skip_special; /* special tokens are plain text here */
    size_t at;         /* where the search goes on */
    size_t done;       /* behind the last token and its white space */
    size_t space_end;
    const sh_added_token *token; /* the token found */
    size_t from;                 /* plain text before it, */
    size_t first;                /* up to it and its white space */
} sh_added_walk;

/* Finds the next token, with the plain text before it. False at the end, where the plain text is
 * the rest. */
bool sh_added_next(sh_added_walk *walk);

#endif
