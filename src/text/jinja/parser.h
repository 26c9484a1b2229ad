/* parser.h - parses a template's source into its tree.
 *
 * Threads: a parser has one owner. */
#ifndef SH_TEXT_JINJA_PARSER_H
#define SH_TEXT_JINJA_PARSER_H

#include "text/jinja/lexer.h"
#include "text/jinja/node.h"

enum { SH_JSYM_BUCKETS = 1024 };

/* An open tag and the tags that may end its body. */
typedef struct sh_jopen sh_jopen;
struct sh_jopen {
    const char *tag;
    const char *ends; /* "elif|else|endif" */
    const sh_jopen *outer;
};

typedef struct {
    sh_jrun *run;
    sh_jlexer lex;
    sh_jtoken token; /* the current one */
    sh_jtoken ahead;
    bool has_ahead;
    int loops;     /* enclosing for loops within this function: break needs one */
    int loops_all; /* also those of the enclosing functions */
    const sh_jopen *open;
    sh_jsym *syms[SH_JSYM_BUCKETS];
} sh_jparser;

/* Parses the whole template and resolves every name to its slot. An error ends the run. */
sh_jtree *sh_jparse(sh_jrun *run, sh_str source);

/* Resolves names to slots (scope.c). */
void sh_jtree_bind(sh_jparser *p, sh_jtree *tree);

/* Shared by parser.c and expr.c: */

sh_jtoken sh_jparser_next(sh_jparser *p); /* returns the current token and advances */
const sh_jtoken *sh_jparser_look(sh_jparser *p);
bool sh_jparser_at_name(const sh_jparser *p, const char *word);
bool sh_jparser_skip(sh_jparser *p, sh_jtoken_type type);
bool sh_jparser_skip_name(sh_jparser *p, const char *word);
sh_jtoken sh_jparser_expect(sh_jparser *p, sh_jtoken_type type);
void sh_jparser_expect_name(sh_jparser *p, const char *word);
SH_NORETURN void sh_jparser_fail(sh_jparser *p, int line, const char *fmt, ...) SH_PRINTF(3, 4);

sh_jnode *sh_jparser_node(sh_jparser *p, sh_jnode_type type, int line);
void sh_jnodes_add(sh_jnodes *nodes, sh_jnode *node);
sh_jsym *sh_jparser_sym(sh_jparser *p, sh_str text);
const sh_jstr *sh_jparser_str(sh_jparser *p, sh_str text);

/* An expression; with_cond allows `a if b else c` at its top level. */
sh_jnode *sh_jparse_expr(sh_jparser *p, bool with_cond);

/* An expression or a tuple without parentheses. */
sh_jnode *sh_jparse_tuple(sh_jparser *p, bool with_cond);

/* The target of a for or set: a name or a tuple of names, with_ns also ns.attr. */
sh_jnode *sh_jparse_target(sh_jparser *p, bool with_ns);
sh_jnode *sh_jparse_name_target(sh_jparser *p);

/* `|a|b(c)` after value (NULL in blocks), or `a|b(c)` if inline_first. */
sh_jnode *sh_jparse_filters(sh_jparser *p, sh_jnode *value, bool inline_first);

#endif
