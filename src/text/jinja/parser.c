/* Statements: a recursive-descent parser over Jinja's grammar (expressions are in expr.c).
 *
 * Error texts are Jinja's own, since template authors know them and search for them; tests compare
 * them with what Jinja prints. Tags that we do not support fail here, when the model is loaded, and
 * not later in the middle of a request.
 *
 * Recursion is bounded by sh_jrun_enter(), which also charges a step: a template is untrusted
 * input, and thousands of nested tags must give an error instead of a stack overflow. */
#include "text/jinja/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sh_jparser_fail(sh_jparser *p, int line, const char *fmt, ...)
{
    char text[SH_ERR_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    p->run->line = line;
    sh_jrun_error(p->run, "%s", text);
}

/* Also keeps run->line up to date, so that any error names the line of the current token. */
sh_jtoken sh_jparser_next(sh_jparser *p)
{
    sh_jtoken token = p->token;
    p->token = p->has_ahead ? p->ahead : sh_jlexer_next(&p->lex);
    p->has_ahead = false;
    p->run->line = p->token.line;
    return token;
}

/* One token of look-ahead is enough for Jinja's grammar. */
const sh_jtoken *sh_jparser_look(sh_jparser *p)
{
    if (!p->has_ahead) p->ahead = sh_jlexer_next(&p->lex);
    p->has_ahead = true;
    return &p->ahead;
}

bool sh_jparser_at_name(const sh_jparser *p, const char *word)
{
    return p->token.type == SH_JT_NAME && sh_str_is(p->token.text, word);
}

bool sh_jparser_skip(sh_jparser *p, sh_jtoken_type type)
{
    if (p->token.type != type) return false;
    sh_jparser_next(p);
    return true;
}

bool sh_jparser_skip_name(sh_jparser *p, const char *word)
{
    if (!sh_jparser_at_name(p, word)) return false;
    sh_jparser_next(p);
    return true;
}

static SH_NORETURN void expected_fail(sh_jparser *p, const char *what)
{
    if (p->token.type == SH_JT_EOF)
        sh_jparser_fail(p, p->token.line, "unexpected end of template, expected '%s'.", what);
    sh_str got = sh_jtoken_describe(&p->token);
    sh_jparser_fail(p, p->token.line, "expected token '%s', got '%.*s'", what, (int)got.len,
                    got.ptr);
}

sh_jtoken sh_jparser_expect(sh_jparser *p, sh_jtoken_type type)
{
    if (p->token.type != type) expected_fail(p, sh_jtoken_type_name(type));
    return sh_jparser_next(p);
}

void sh_jparser_expect_name(sh_jparser *p, const char *word)
{
    if (!sh_jparser_skip_name(p, word)) expected_fail(p, word);
}

sh_jnode *sh_jparser_node(sh_jparser *p, sh_jnode_type type, int line)
{
    sh_jnode *node = sh_jrun_alloc(p->run, sizeof(*node));
    node->type = type;
    node->line = line;
    return node;
}

void sh_jnodes_add(sh_jnodes *nodes, sh_jnode *node)
{
    if (nodes->tail == NULL)
        nodes->head = node;
    else
        nodes->tail->next = node;
    nodes->tail = node;
    nodes->count++;
}

const sh_jstr *sh_jparser_str(sh_jparser *p, sh_str text)
{
    return sh_jstr_borrow(p->run, text); /* the lexer's copy lives as long as the tree */
}

/* The symbol of a name, created on first use. Chains are charged, as the names are untrusted. */
sh_jsym *sh_jparser_sym(sh_jparser *p, sh_str text)
{
    sh_jsym **at = &p->syms[sh_hash64(text.ptr, text.len) % SH_JSYM_BUCKETS];
    for (; *at != NULL; at = &(*at)->next) {
        sh_jrun_charge(p->run, 1);
        if (sh_str_eq(sh_jstr_str((*at)->text), text)) return *at;
    }
    *at = sh_jrun_alloc(p->run, sizeof(**at));
    (*at)->text = sh_jparser_str(p, text);
    return *at;
}

/* Whether the current token is one of the names "a|b|c". */
static bool at_one_of(const sh_jparser *p, const char *words)
{
    sh_str rest = sh_str_of(words), word;
    while (p->token.type == SH_JT_NAME && sh_str_cut(&rest, '|', &word))
        if (sh_str_eq(p->token.text, word)) return true;
    return false;
}

/* Jinja's error for an unexpected tag, or (name.ptr NULL) an unexpected end of the template. */
static SH_NORETURN void tag_fail(sh_jparser *p, sh_str name)
{
    char wanted[100] = "";
    size_t len = 0;
    sh_str rest = sh_str_of(p->open == NULL ? "" : p->open->ends), word;
    while (sh_str_cut(&rest, '|', &word))
        len += (size_t)snprintf(wanted + len, sizeof(wanted) - len, "%s'%.*s'",
                                len == 0 ? "" : " or ", (int)word.len, word.ptr);
    char what[160] = "Unexpected end of template.";
    if (name.ptr != NULL)
        snprintf(what, sizeof(what), "Encountered unknown tag '%.*s'.",
                 (int)(name.len < 100 ? name.len : 100), name.ptr);
    if (p->open == NULL) sh_jparser_fail(p, p->token.line, "%s", what);
    sh_jparser_fail(p, p->token.line,
                    "%s Jinja was looking for the following tags: %s. The innermost block that "
                    "needs to be closed is '%s'.",
                    what, wanted, p->open->tag);
}

static void parse_statement(sh_jparser *p, sh_jnodes *out);

/* Statements and data up to one of the open tag's ends, or up to the end of the template. */
static sh_jnodes parse_nodes(sh_jparser *p)
{
    sh_jnodes nodes = {0};
    while (p->token.type != SH_JT_EOF) {
        sh_jtoken token = sh_jparser_next(p);
        if (token.type == SH_JT_DATA) {
            sh_jnode *data = sh_jparser_node(p, SH_JN_DATA, token.line);
            data->u.value = sh_jv_of_str(sh_jparser_str(p, token.text));
            sh_jnodes_add(&nodes, data);
        } else if (token.type == SH_JT_VARIABLE_BEGIN) {
            sh_jnode *print = sh_jparser_node(p, SH_JN_PRINT, p->token.line);
            sh_jnodes_add(&print->u.items, sh_jparse_tuple(p, true));
            sh_jparser_expect(p, SH_JT_VARIABLE_END);
            sh_jnodes_add(&nodes, print);
        } else {
            SH_ASSERT(token.type == SH_JT_BLOCK_BEGIN);
            if (p->open != NULL && at_one_of(p, p->open->ends)) return nodes;
            parse_statement(p, &nodes);
            sh_jparser_expect(p, SH_JT_BLOCK_END);
        }
    }
    if (p->open != NULL) tag_fail(p, (sh_str){0});
    return nodes;
}

/* The body of a tag whose head has just been read; the end tag becomes the current token. */
static sh_jnodes parse_body(sh_jparser *p, const char *tag, const char *ends)
{
    sh_jopen open = {tag, ends, p->open};
    /* Jinja allows a colon after the head of a tag, as in Python. */
    sh_jparser_skip(p, SH_JT_COLON);
    sh_jparser_expect(p, SH_JT_BLOCK_END);
    p->open = &open;
    sh_jnodes nodes = parse_nodes(p);
    p->open = open.outer;
    return nodes;
}

static sh_jnodes parse_body_whole(sh_jparser *p, const char *tag, const char *end)
{
    sh_jnodes nodes = parse_body(p, tag, end);
    sh_jparser_next(p);
    return nodes;
}

/* A copy of the target for the loop's test, which has a scope and thus slots of its own. */
static sh_jnode *target_copy(sh_jparser *p, const sh_jnode *target)
{
    sh_jnode *copy = sh_jparser_node(p, target->type, target->line);
    copy->u = target->u;
    if (target->type != SH_JN_TUPLE) return copy;
    copy->u.items = (sh_jnodes){0};
    for (const sh_jnode *item = target->u.items.head; item != NULL; item = item->next)
        sh_jnodes_add(&copy->u.items, target_copy(p, item));
    return copy;
}

static sh_jnode *parse_for(sh_jparser *p, int line)
{
    sh_jnode *node = sh_jparser_node(p, SH_JN_FOR, line);
    sh_jfor *loop = node->u.loop = sh_jrun_alloc(p->run, sizeof(*loop));
    int loops = p->loops;
    p->loops_all++;
    loop->target = sh_jparse_target(p, false);
    sh_jparser_expect_name(p, "in");
    loop->iter = sh_jparse_tuple(p, false);
    if (sh_jparser_skip_name(p, "if")) {
        loop->test = sh_jparse_expr(p, true);
        loop->test_target = target_copy(p, loop->target);
    }
    loop->recursive = sh_jparser_skip_name(p, "recursive");
    /* A recursive loop is a function: a break in its else cannot reach a loop around it. */
    p->loops = loop->recursive ? 1 : loops + 1;
    loop->body = parse_body(p, "for", "endfor|else");
    p->loops = loop->recursive ? 0 : loops;
    if (sh_str_is(sh_jparser_next(p).text, "else"))
        loop->otherwise = parse_body_whole(p, "for", "endfor");
    p->loops = loops;
    p->loops_all--;
    return node;
}

/* One branch for each if, elif and else; only the else has no test, and it must be the last. */
static sh_jnode *parse_if(sh_jparser *p, int line)
{
    sh_jnode *node = sh_jparser_node(p, SH_JN_IF, line);
    sh_str end = SH_STR("elif");
    do {
        sh_jnode *branch = sh_jparser_node(p, SH_JN_BRANCH, p->token.line);
        bool test = sh_str_is(end, "elif");
        if (test) branch->u.branch.test = sh_jparse_tuple(p, false);
        branch->u.branch.body = parse_body(p, "if", test ? "elif|else|endif" : "endif");
        sh_jnodes_add(&node->u.items, branch);
        end = sh_jparser_next(p).text;
    } while (!sh_str_is(end, "endif"));
    return node;
}

/* With "=" an assignment, without it a block whose text is assigned. */
static sh_jnode *parse_set(sh_jparser *p, int line)
{
    sh_jnode *target = sh_jparse_target(p, true);
    if (sh_jparser_skip(p, SH_JT_ASSIGN)) {
        sh_jnode *node = sh_jparser_node(p, SH_JN_SET, line);
        node->u.set.target = target;
        node->u.set.value = sh_jparse_tuple(p, true);
        return node;
    }
    sh_jnode *node = sh_jparser_node(p, SH_JN_SET_BLOCK, line);
    node->u.capture.target = target;
    node->u.capture.filter = sh_jparse_filters(p, NULL, false);
    node->u.capture.body = parse_body_whole(p, "set", "endset");
    return node;
}

/* Parameters with a default must come last. */
static void parse_params(sh_jparser *p, sh_jfunc *func)
{
    sh_jparser_expect(p, SH_JT_LPAREN);
    while (p->token.type != SH_JT_RPAREN) {
        if (func->params.count > 0) sh_jparser_expect(p, SH_JT_COMMA);
        sh_jnodes_add(&func->params, sh_jparse_name_target(p));
        if (sh_jparser_skip(p, SH_JT_ASSIGN))
            sh_jnodes_add(&func->defaults, sh_jparse_expr(p, true));
        else if (func->defaults.count > 0)
            sh_jparser_fail(p, p->token.line, "non-default argument follows default argument");
    }
    sh_jparser_expect(p, SH_JT_RPAREN);
}

/* The body of a macro or call block is a function: a break in it cannot reach a loop outside. */
static void parse_func_body(sh_jparser *p, sh_jfunc *func, const char *tag, const char *end)
{
    int loops = p->loops;
    p->loops = 0;
    func->body = parse_body_whole(p, tag, end);
    p->loops = loops;
}

static sh_jnode *func_node(sh_jparser *p, sh_jnode_type type, int line, sh_str name)
{
    sh_jnode *node = sh_jparser_node(p, type, line);
    node->u.func = sh_jrun_alloc(p->run, sizeof(*node->u.func));
    node->u.func->name = sh_jparser_sym(p, name);
    return node;
}

static sh_jnode *parse_macro(sh_jparser *p, int line)
{
    sh_jnode *name = sh_jparse_name_target(p);
    sh_jnode *node = func_node(p, SH_JN_MACRO, line, sh_jstr_str(name->u.name.sym->text));
    parse_params(p, node->u.func);
    parse_func_body(p, node->u.func, "macro", "endmacro");
    return node;
}

/* The body becomes a macro named caller, which is passed to the macro that the tag calls. */
static sh_jnode *parse_call_block(sh_jparser *p, int line)
{
    sh_jnode *node = func_node(p, SH_JN_CALL_BLOCK, line, SH_STR("caller"));
    if (p->token.type == SH_JT_LPAREN) parse_params(p, node->u.func);
    node->u.func->call = sh_jparse_expr(p, true);
    if (node->u.func->call->type != SH_JN_CALL) sh_jparser_fail(p, line, "expected call");
    parse_func_body(p, node->u.func, "call", "endcall");
    return node;
}

/* transformers' tag around what the assistant said; it only matters for training masks, so the body
 * is rendered in place. */
static sh_jnode *parse_generation(sh_jparser *p, int line)
{
    sh_jnode *node = func_node(p, SH_JN_CALL_BLOCK, line, SH_STR("caller"));
    parse_func_body(p, node->u.func, "generation", "endgeneration");
    return node;
}

static sh_jnode *parse_filter_block(sh_jparser *p, int line)
{
    sh_jnode *node = sh_jparser_node(p, SH_JN_FILTER_BLOCK, line);
    node->u.capture.filter = sh_jparse_filters(p, NULL, true);
    node->u.capture.body = parse_body_whole(p, "filter", "endfilter");
    return node;
}

/* Turns the names of a target into parameters of the scope. */
static void target_to_param(sh_jnode *node)
{
    if (node->type == SH_JN_NAME) node->u.name.use = SH_JNAME_PARAM;
    if (node->type != SH_JN_TUPLE) return;
    for (sh_jnode *item = node->u.items.head; item != NULL; item = item->next)
        target_to_param(item);
}

/* The targets are parameters of the scope; the values are evaluated outside of it. */
static sh_jnode *parse_with(sh_jparser *p, int line)
{
    sh_jnode *node = sh_jparser_node(p, SH_JN_WITH, line);
    while (p->token.type != SH_JT_BLOCK_END) {
        if (node->u.with.targets.count > 0) sh_jparser_expect(p, SH_JT_COMMA);
        sh_jnode *target = sh_jparse_target(p, false);
        target_to_param(target);
        sh_jnodes_add(&node->u.with.targets, target);
        sh_jparser_expect(p, SH_JT_ASSIGN);
        sh_jnodes_add(&node->u.with.values, sh_jparse_expr(p, true));
    }
    node->u.with.body = parse_body_whole(p, "with", "endwith");
    return node;
}

/* Turning autoescape off is allowed, since it is off. */
static sh_jnode *parse_autoescape(sh_jparser *p, int line)
{
    sh_jnode *mode = sh_jparse_expr(p, true);
    if (mode->type != SH_JN_CONST || sh_jv_truth(mode->u.value)) {
        p->run->line = line;
        sh_jrun_fail(p->run, SH_ERR_UNSUPPORTED, "autoescape is not supported");
    }
    sh_jnode *node = sh_jparser_node(p, SH_JN_SCOPE, line);
    node->u.with.body = parse_body_whole(p, "autoescape", "endautoescape");
    return node;
}

/* The end tag may repeat the name of the block. */
static sh_jnode *parse_block(sh_jparser *p, int line)
{
    sh_str name = sh_jparser_expect(p, SH_JT_NAME).text;
    sh_jnode *node = func_node(p, SH_JN_BLOCK, line, name);
    if (sh_jparser_at_name(p, "scoped") || sh_jparser_at_name(p, "required")) {
        p->run->line = line;
        sh_jrun_fail(p->run, SH_ERR_UNSUPPORTED, "block '%.*s': '%.*s' is not supported",
                     (int)name.len, name.ptr, (int)p->token.text.len, p->token.text.ptr);
    }
    parse_func_body(p, node->u.func, "block", "endblock");
    if (p->token.type == SH_JT_NAME && sh_str_eq(p->token.text, name)) sh_jparser_next(p);
    return node;
}

static sh_jnode *parse_print(sh_jparser *p, int line)
{
    sh_jnode *node = sh_jparser_node(p, SH_JN_PRINT, line);
    while (p->token.type != SH_JT_BLOCK_END) {
        if (node->u.items.count > 0) sh_jparser_expect(p, SH_JT_COMMA);
        sh_jnodes_add(&node->u.items, sh_jparse_expr(p, true));
    }
    return node;
}

static sh_jnode *parse_jump(sh_jparser *p, int line, sh_jnode_type type, const char *word)
{
    if (p->loops == 0) sh_jparser_fail(p, line, "'%s' outside loop", word);
    return sh_jparser_node(p, type, line);
}

static sh_jnode *parse_break(sh_jparser *p, int line)
{
    return parse_jump(p, line, SH_JN_BREAK, "break");
}

static sh_jnode *parse_continue(sh_jparser *p, int line)
{
    return parse_jump(p, line, SH_JN_CONTINUE, "continue");
}

static sh_jnode *parse_refused(sh_jparser *p, int line)
{
    p->run->line = line;
    sh_jrun_fail(p->run, SH_ERR_UNSUPPORTED,
                 "include, import and extends are not supported: a chat template must be "
                 "self-contained");
}

static const struct {
    const char *name;
    sh_jnode *(*parse)(sh_jparser *p, int line);
} tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"break", parse_break},
    {"continue", parse_continue},
    {"generation", parse_generation},
    {"print", parse_print},
    {"block", parse_block},
    {"autoescape", parse_autoescape},
    {"include", parse_refused},
    {"import", parse_refused},
    {"from", parse_refused},
    {"extends", parse_refused},
};

/* Counts as a level of nesting: tags recurse through parse_body(). */
static void parse_statement(sh_jparser *p, sh_jnodes *out)
{
    if (p->token.type != SH_JT_NAME) sh_jparser_fail(p, p->token.line, "tag name expected");
    for (size_t i = 0; i < SH_COUNT_OF(tags); i++) {
        if (!sh_str_is(p->token.text, tags[i].name)) continue;
        int line = sh_jparser_next(p).line;
        sh_jrun_enter(p->run);
        sh_jnodes_add(out, tags[i].parse(p, line));
        sh_jrun_leave(p->run);
        return;
    }
    tag_fail(p, p->token.text);
}

sh_jtree *sh_jparse(sh_jrun *run, sh_str source)
{
    sh_jparser *p = sh_jrun_alloc(run, sizeof(*p));
    p->run = run;
    sh_jlexer_init(&p->lex, run, source);
    p->token = sh_jlexer_next(&p->lex);
    sh_jtree *tree = sh_jrun_alloc(run, sizeof(*tree));
    tree->body = parse_nodes(p);
    sh_jtree_bind(p, tree);
    return tree;
}
