/* added.h - added tokens, which are matched in the text before it is split into words.
 *
 * An added token is a string with an id and flags. The leftmost match wins, and of several that
 * start at the same position the longest. Tokens with `normalized` are searched in the normalized
 * text, the others before normalization, so there are two sets.
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
    sh_str shown; /* its text when ids are decoded: the content, normalized if that flag is set */
    int32_t id;
    bool special;     /* can be omitted from decoded text */
    bool lstrip;      /* also consumes white space before it */
    bool rstrip;      /* also consumes white space after it */
    bool single_word; /* matches only if no word character is next to it */
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

/* Copies the strings; a token without content is ignored. */
void sh_added_add(sh_added *added, const sh_added_token *token);

/* Builds the sets; no token can be added afterwards. Fails if an id has two contents, or a content
 * two ids. */
SH_MUST_CHECK sh_status sh_added_seal(sh_added *added, sh_err *err);
void sh_added_reset(sh_added *added);

/* NULL if there is none. */
const sh_added_token *sh_added_by_id(const sh_added *added, int32_t id);
const sh_added_token *sh_added_by_content(const sh_added *added, sh_str content);

/* Iterates over the tokens in a text. Set trie, text and skip_special, and zero the rest. */
typedef struct {
    const sh_added_trie *trie;
    sh_str text;
    bool skip_special; /* treat special tokens as plain text */
    size_t at;         /* where the search continues */
    size_t done;       /* end of the last token and the white space it consumed */
    size_t space_end;
    const sh_added_token *token; /* the token found */
    size_t from;                 /* from..first is the plain text before it */
    size_t first;
} sh_added_walk;

/* Finds the next token and the plain text before it. Returns false at the end, where from..first is
 * the remaining text. */
bool sh_added_next(sh_added_walk *walk);

#endif
