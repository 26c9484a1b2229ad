/* lexer.h - splits a template into tokens, with Jinja's rules for white space: trim_blocks and
 * lstrip_blocks are on, `-` and `+` in tags override them, one newline at the end is dropped.
 *
 * Tokens are produced one at a time; their text points into the lexer's copy of the source.
 *
 * Threads: a lexer has one owner. */
#ifndef SH_TEXT_JINJA_LEXER_H
#define SH_TEXT_JINJA_LEXER_H

#include "text/jinja/run.h"

typedef enum {
    SH_JT_EOF,
    SH_JT_DATA,
    SH_JT_VARIABLE_BEGIN,
    SH_JT_VARIABLE_END,
    SH_JT_BLOCK_BEGIN,
    SH_JT_BLOCK_END,
    SH_JT_NAME,
    SH_JT_STRING,
    SH_JT_INT,
    SH_JT_FLOAT,
    SH_JT_ADD,
    SH_JT_SUB,
    SH_JT_MUL,
    SH_JT_DIV,
    SH_JT_FLOORDIV,
    SH_JT_MOD,
    SH_JT_POW,
    SH_JT_TILDE,
    SH_JT_LBRACKET,
    SH_JT_RBRACKET,
    SH_JT_LPAREN,
    SH_JT_RPAREN,
    SH_JT_LBRACE,
    SH_JT_RBRACE,
    SH_JT_EQ,
    SH_JT_NE,
    SH_JT_GT,
    SH_JT_GE,
    SH_JT_LT,
    SH_JT_LE,
    SH_JT_ASSIGN,
    SH_JT_DOT,
    SH_JT_COLON,
    SH_JT_PIPE,
    SH_JT_COMMA,
    SH_JT_SEMICOLON,
} sh_jtoken_type;

typedef struct {
    sh_jtoken_type type;
    int line;
    sh_str text; /* NAME, DATA: verbatim; STRING: unquoted and unescaped */
    sh_jv value; /* INT, FLOAT */
} sh_jtoken;

enum { SH_JLEX_NEST_MAX = 200 };

typedef struct {
    sh_jrun *run;
    sh_str source; /* all newlines are \n */
    size_t pos;
    size_t line_pos; /* position that `line` is the number of */
    int line;
    sh_jtoken_type tag;     /* VARIABLE_BEGIN or BLOCK_BEGIN inside a tag, else DATA */
    sh_jtoken_type pending; /* begin of the tag that follows the last data token, else EOF */
    char closers[SH_JLEX_NEST_MAX];
    int nest;
} sh_jlexer;

void sh_jlexer_init(sh_jlexer *lex, sh_jrun *run, sh_str source);
sh_jtoken sh_jlexer_next(sh_jlexer *lex);

/* How Jinja describes a token in errors: a name by itself, an operator by its spelling. */
sh_str sh_jtoken_describe(const sh_jtoken *token);
const char *sh_jtoken_type_name(sh_jtoken_type type);

#endif
