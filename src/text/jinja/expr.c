/* Expressions, one function per level of Jinja's precedence: or, and, not, comparison, + -, ~,
 * * / // %, **, sign, then what follows a value (attributes, subscripts, calls, filters, tests).
 *
 * The precedence is not Python's: ~ binds tighter than +, a sign binds tighter than **, and **
 * groups to the left. Templates are written against Jinja, so this must stay as it is.
 *
 * Functions that recurse are bounded by sh_jrun_enter(). Filters and tests are looked up here,
 * once; an unknown name is an error only in scope.c, which knows whether it may be left unused. */
#include "text/jinja/call.h"
#include "text/jinja/parser.h"

static sh_jnode *parse_or(sh_jparser *p);
static sh_jnode *parse_primary(sh_jparser *p, bool with_ns);

static sh_jnode *pair_node(sh_jparser *p, sh_jnode_type type, int line, sh_jnode *left,
                           sh_jnode *right)
{
    sh_jnode *node = sh_jparser_node(p, type, line);
    node->u.binary.left = left;
    node->u.binary.right = right;
    return node;
}

static sh_jnode *const_node(sh_jparser *p, int line, sh_jv value)
{
    sh_jnode *node = sh_jparser_node(p, SH_JN_CONST, line);
    node->u.value = value;
    return node;
}

/* Operators, from the loosest to the tightest. */

/* A missing else is allowed: the value is then undefined. */
static sh_jnode *parse_cond(sh_jparser *p)
{
    int line = p->token.line;
    sh_jnode *expr = parse_or(p);
    while (sh_jparser_skip_name(p, "if")) {
        sh_jnode *node = sh_jparser_node(p, SH_JN_COND, line);
        node->u.cond.yes = expr;
        node->u.cond.test = parse_or(p);
        if (sh_jparser_skip_name(p, "else")) node->u.cond.no = sh_jparse_expr(p, true);
        expr = node;
        line = p->token.line;
    }
    return expr;
}

sh_jnode *sh_jparse_expr(sh_jparser *p, bool with_cond)
{
    sh_jrun_enter(p->run);
    sh_jnode *node = with_cond ? parse_cond(p) : parse_or(p);
    sh_jrun_leave(p->run);
    return node;
}

typedef struct {
    sh_jtoken_type type;
    sh_jop op;
} op_row;

/* If the current token is one of the operators, takes it. */
static bool op_take(sh_jparser *p, const op_row *rows, size_t count, sh_jop *op)
{
    for (size_t i = 0; i < count; i++) {
        if (rows[i].type != p->token.type) continue;
        *op = rows[i].op;
        sh_jparser_next(p);
        return true;
    }
    return false;
}

/* Operators of one level group to the left. This loop does not recurse, but a long chain still
 * makes a deep tree; scope.c, which walks it first, rejects one that is too deep for the walks
 * after it.
 */
static sh_jnode *parse_level(sh_jparser *p, const op_row *rows, size_t count,
                             sh_jnode *(*operand)(sh_jparser *))
{
    int line = p->token.line;
    sh_jnode *left = operand(p);
    sh_jop op;
    while (op_take(p, rows, count, &op)) {
        left = pair_node(p, SH_JN_BINARY, line, left, operand(p));
        left->u.binary.op = op;
        line = p->token.line;
    }
    return left;
}

static sh_jnode *parse_sign(sh_jparser *p, bool with_filter);

static sh_jnode *parse_unary(sh_jparser *p)
{
    return parse_sign(p, true);
}

static sh_jnode *parse_pow(sh_jparser *p)
{
    static const op_row rows[] = {{SH_JT_POW, SH_JOP_POW}};
    return parse_level(p, rows, SH_COUNT_OF(rows), parse_unary);
}

static sh_jnode *parse_product(sh_jparser *p)
{
    static const op_row rows[] = {{SH_JT_MUL, SH_JOP_MUL},
                                  {SH_JT_DIV, SH_JOP_DIV},
                                  {SH_JT_FLOORDIV, SH_JOP_FLOORDIV},
                                  {SH_JT_MOD, SH_JOP_MOD}};
    return parse_level(p, rows, SH_COUNT_OF(rows), parse_pow);
}

/* All operands of ~ go into one node: the text is built once, not once for each operator. */
static sh_jnode *parse_concat(sh_jparser *p)
{
    int line = p->token.line;
    sh_jnode *first = parse_product(p);
    if (p->token.type != SH_JT_TILDE) return first;
    sh_jnode *node = sh_jparser_node(p, SH_JN_CONCAT, line);
    sh_jnodes_add(&node->u.items, first);
    while (sh_jparser_skip(p, SH_JT_TILDE)) sh_jnodes_add(&node->u.items, parse_product(p));
    return node;
}

static sh_jnode *parse_sum(sh_jparser *p)
{
    static const op_row rows[] = {{SH_JT_ADD, SH_JOP_ADD}, {SH_JT_SUB, SH_JOP_SUB}};
    return parse_level(p, rows, SH_COUNT_OF(rows), parse_concat);
}

/* `not` is a comparison only if `in` follows, hence the look-ahead. */
static bool compare_take(sh_jparser *p, sh_jop *op)
{
    static const op_row rows[] = {{SH_JT_EQ, SH_JOP_EQ}, {SH_JT_NE, SH_JOP_NE},
                                  {SH_JT_LT, SH_JOP_LT}, {SH_JT_LE, SH_JOP_LE},
                                  {SH_JT_GT, SH_JOP_GT}, {SH_JT_GE, SH_JOP_GE}};
    if (op_take(p, rows, SH_COUNT_OF(rows), op)) return true;
    *op = SH_JOP_IN;
    if (sh_jparser_skip_name(p, "in")) return true;
    const sh_jtoken *ahead = sh_jparser_at_name(p, "not") ? sh_jparser_look(p) : NULL;
    if (ahead == NULL || ahead->type != SH_JT_NAME || !sh_str_is(ahead->text, "in")) return false;
    *op = SH_JOP_NOT_IN;
    sh_jparser_next(p);
    sh_jparser_next(p);
    return true;
}

/* A chain such as `a < b <= c` is one node, since each value must be evaluated only once. */
static sh_jnode *parse_compare(sh_jparser *p)
{
    int line = p->token.line;
    sh_jnode *first = parse_sum(p), *node = NULL;
    sh_jop op;
    while (compare_take(p, &op)) {
        if (node == NULL) {
            node = sh_jparser_node(p, SH_JN_COMPARE, line);
            node->u.compare.first = first;
        }
        sh_jnode *operand = pair_node(p, SH_JN_OPERAND, p->token.line, NULL, parse_sum(p));
        operand->u.binary.op = op;
        sh_jnodes_add(&node->u.compare.operands, operand);
    }
    return node == NULL ? first : node;
}

static sh_jnode *parse_not(sh_jparser *p)
{
    if (!sh_jparser_at_name(p, "not")) return parse_compare(p);
    int line = sh_jparser_next(p).line;
    sh_jrun_enter(p->run);
    sh_jnode *node = pair_node(p, SH_JN_NOT, line, parse_not(p), NULL);
    sh_jrun_leave(p->run);
    return node;
}

static sh_jnode *parse_logic(sh_jparser *p, const char *word, sh_jnode_type type,
                             sh_jnode *(*operand)(sh_jparser *))
{
    int line = p->token.line;
    sh_jnode *left = operand(p);
    while (sh_jparser_skip_name(p, word)) {
        left = pair_node(p, type, line, left, operand(p));
        line = p->token.line;
    }
    return left;
}

static sh_jnode *parse_and(sh_jparser *p)
{
    return parse_logic(p, "and", SH_JN_AND, parse_not);
}

static sh_jnode *parse_or(sh_jparser *p)
{
    return parse_logic(p, "or", SH_JN_OR, parse_and);
}

/* Calls, filters, subscripts and tests: what can follow a value. */

static SH_NORETURN void args_fail(sh_jparser *p, int line)
{
    sh_jparser_fail(p, line, "invalid syntax for function call expression");
}

/* One argument; the order is positional, named, *args, **kwargs, and named after *args is allowed.
 */
static void parse_arg(sh_jparser *p, sh_jsignature *args, int line)
{
    if (sh_jparser_skip(p, SH_JT_MUL)) {
        if (args->rest != NULL || args->others != NULL) args_fail(p, line);
        args->rest = sh_jparse_expr(p, true);
    } else if (sh_jparser_skip(p, SH_JT_POW)) {
        if (args->others != NULL) args_fail(p, line);
        args->others = sh_jparse_expr(p, true);
    } else if (p->token.type == SH_JT_NAME && sh_jparser_look(p)->type == SH_JT_ASSIGN) {
        if (args->others != NULL) args_fail(p, line);
        sh_jnode *node = sh_jparser_node(p, SH_JN_KEYWORD, p->token.line);
        node->u.keyword.name = sh_jparser_str(p, sh_jparser_next(p).text);
        sh_jparser_next(p);
        node->u.keyword.value = sh_jparse_expr(p, true);
        sh_jnodes_add(&args->named, node);
    } else {
        if (args->rest != NULL || args->others != NULL || args->named.count > 0) args_fail(p, line);
        sh_jnodes_add(&args->pos, sh_jparse_expr(p, true));
    }
}

static void parse_args(sh_jparser *p, sh_jsignature *args)
{
    int line = sh_jparser_expect(p, SH_JT_LPAREN).line;
    for (bool first = true; p->token.type != SH_JT_RPAREN; first = false) {
        if (!first) {
            sh_jparser_expect(p, SH_JT_COMMA);
            if (p->token.type == SH_JT_RPAREN) break;
        }
        parse_arg(p, args, line);
    }
    sh_jparser_expect(p, SH_JT_RPAREN);
}

/* The name of a filter or test, which may contain dots. */
static const sh_jstr *parse_dotted(sh_jparser *p)
{
    size_t mark = sh_jrun_mark(p->run);
    sh_jrun_put(p->run, sh_jparser_expect(p, SH_JT_NAME).text);
    while (sh_jparser_skip(p, SH_JT_DOT)) {
        SH_JRUN_PUT(p->run, ".");
        sh_jrun_put(p->run, sh_jparser_expect(p, SH_JT_NAME).text);
    }
    return sh_jrun_take(p->run, mark);
}

sh_jnode *sh_jparse_filters(sh_jparser *p, sh_jnode *value, bool inline_first)
{
    while (inline_first || sh_jparser_skip(p, SH_JT_PIPE)) {
        sh_jnode *node = sh_jparser_node(p, SH_JN_FILTER, p->token.line);
        node->u.call.target = value;
        node->u.call.name = parse_dotted(p);
        node->u.call.func = sh_jfilter_find(sh_jstr_str(node->u.call.name));
        if (p->token.type == SH_JT_LPAREN) parse_args(p, &node->u.call.args);
        value = node;
        inline_first = false;
    }
    return value;
}

static sh_jnode *parse_slice_part(sh_jparser *p)
{
    switch (p->token.type) {
    case SH_JT_COLON:
    case SH_JT_RBRACKET:
    case SH_JT_COMMA: return NULL;
    default: return sh_jparse_expr(p, true);
    }
}

/* An index or a slice. */
static sh_jnode *parse_subscribed(sh_jparser *p)
{
    int line = p->token.line;
    sh_jnode *start = p->token.type == SH_JT_COLON ? NULL : sh_jparse_expr(p, true);
    if (start != NULL && p->token.type != SH_JT_COLON) return start;
    sh_jparser_next(p);
    sh_jnode *node = sh_jparser_node(p, SH_JN_SLICE, line);
    node->u.slice.start = start;
    node->u.slice.stop = parse_slice_part(p);
    if (sh_jparser_skip(p, SH_JT_COLON)) node->u.slice.step = parse_slice_part(p);
    return node;
}

/* `a[1, 2]` is an index by a tuple. */
static sh_jnode *parse_index(sh_jparser *p, int line)
{
    sh_jnode *tuple = sh_jparser_node(p, SH_JN_TUPLE, line);
    while (p->token.type != SH_JT_RBRACKET) {
        if (tuple->u.items.count > 0) sh_jparser_expect(p, SH_JT_COMMA);
        sh_jnodes_add(&tuple->u.items, parse_subscribed(p));
    }
    sh_jparser_expect(p, SH_JT_RBRACKET);
    return tuple->u.items.count == 1 ? tuple->u.items.head : tuple;
}

/* `a.name`, `a[...]`, and `a.0`, which Jinja allows for lists. */
static sh_jnode *parse_subscript(sh_jparser *p, sh_jnode *obj)
{
    sh_jtoken mark = sh_jparser_next(p);
    if (mark.type == SH_JT_DOT && p->token.type == SH_JT_NAME) {
        sh_jnode *node = sh_jparser_node(p, SH_JN_ATTR, mark.line);
        node->u.attr.obj = obj;
        node->u.attr.name = sh_jparser_str(p, sh_jparser_next(p).text);
        return node;
    }
    sh_jnode *node = sh_jparser_node(p, SH_JN_ITEM, mark.line);
    node->u.item.obj = obj;
    if (mark.type == SH_JT_LBRACKET) {
        node->u.item.index = parse_index(p, mark.line);
        return node;
    }
    if (p->token.type != SH_JT_INT) sh_jparser_fail(p, p->token.line, "expected name or number");
    sh_jtoken number = sh_jparser_next(p);
    node->u.item.index = const_node(p, number.line, number.value);
    return node;
}

static sh_jnode *parse_call(sh_jparser *p, sh_jnode *target)
{
    sh_jnode *node = sh_jparser_node(p, SH_JN_CALL, p->token.line);
    node->u.call.target = target;
    parse_args(p, &node->u.call.args);
    return node;
}

/* Attributes, subscripts and calls can be chained in any order. */
static sh_jnode *parse_postfix(sh_jparser *p, sh_jnode *node)
{
    for (;;) {
        if (p->token.type == SH_JT_DOT || p->token.type == SH_JT_LBRACKET)
            node = parse_subscript(p, node);
        else if (p->token.type == SH_JT_LPAREN)
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

/* Whether an argument without parentheses follows, as in `is divisibleby 3`. */
static bool test_has_arg(sh_jparser *p)
{
    switch (p->token.type) {
    case SH_JT_STRING:
    case SH_JT_INT:
    case SH_JT_FLOAT:
    case SH_JT_LBRACKET:
    case SH_JT_LBRACE: return true;
    case SH_JT_NAME: break;
    default: return false;
    }
    if (sh_jparser_at_name(p, "is"))
        sh_jparser_fail(p, p->token.line, "You cannot chain multiple tests with is");
    return !sh_jparser_at_name(p, "else") && !sh_jparser_at_name(p, "or") &&
           !sh_jparser_at_name(p, "and");
}

static sh_jnode *parse_test(sh_jparser *p, sh_jnode *value)
{
    int line = sh_jparser_next(p).line;
    bool negated = sh_jparser_skip_name(p, "not");
    sh_jnode *node = sh_jparser_node(p, SH_JN_TEST, line);
    node->u.call.target = value;
    node->u.call.name = parse_dotted(p);
    node->u.call.func = sh_jtest_find(sh_jstr_str(node->u.call.name));
    if (p->token.type == SH_JT_LPAREN)
        parse_args(p, &node->u.call.args);
    else if (test_has_arg(p))
        sh_jnodes_add(&node->u.call.args.pos, parse_postfix(p, parse_primary(p, false)));
    return negated ? pair_node(p, SH_JN_NOT, line, node, NULL) : node;
}

/* A filter or test may be called again: `x|f(1)(2)`. */
static sh_jnode *parse_filter_expr(sh_jparser *p, sh_jnode *node)
{
    for (;;) {
        if (p->token.type == SH_JT_PIPE)
            node = sh_jparse_filters(p, node, false);
        else if (sh_jparser_at_name(p, "is"))
            node = parse_test(p, node);
        else if (p->token.type == SH_JT_LPAREN)
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

/* A filter applies to the signed value: -x|abs is (-x)|abs. */
static sh_jnode *parse_sign(sh_jparser *p, bool with_filter)
{
    sh_jnode *node;
    int line = p->token.line;
    bool minus = p->token.type == SH_JT_SUB;
    if (minus || p->token.type == SH_JT_ADD) {
        sh_jparser_next(p);
        sh_jrun_enter(p->run);
        node = pair_node(p, minus ? SH_JN_NEG : SH_JN_POS, line, parse_sign(p, false), NULL);
        sh_jrun_leave(p->run);
    } else {
        node = parse_primary(p, false);
    }
    node = parse_postfix(p, node);
    return with_filter ? parse_filter_expr(p, node) : node;
}

/* Tuples, lists, dicts and literals. */

/* What can end a tuple without parentheses. */
static bool tuple_ends(const sh_jparser *p)
{
    return p->token.type == SH_JT_VARIABLE_END || p->token.type == SH_JT_BLOCK_END ||
           p->token.type == SH_JT_RPAREN;
}

typedef struct {
    bool simple; /* only names and literals */
    bool with_ns;
    bool with_cond;
    bool in_parens; /* () is then an empty tuple */
} tuple_mode;

/* A single expression without a comma is not a tuple. */
static sh_jnode *parse_tuple(sh_jparser *p, tuple_mode mode)
{
    sh_jnode *tuple = sh_jparser_node(p, SH_JN_TUPLE, p->token.line);
    bool comma = false;
    while (!tuple_ends(p)) {
        sh_jnodes_add(&tuple->u.items, mode.simple ? parse_primary(p, mode.with_ns)
                                                   : sh_jparse_expr(p, mode.with_cond));
        if (!sh_jparser_skip(p, SH_JT_COMMA)) break;
        comma = true;
    }
    if (comma) return tuple;
    if (tuple->u.items.count > 0) return tuple->u.items.head;
    if (!mode.in_parens) {
        sh_str got = sh_jtoken_describe(&p->token);
        sh_jparser_fail(p, p->token.line, "Expected an expression, got '%.*s'", (int)got.len,
                        got.ptr);
    }
    return tuple;
}

sh_jnode *sh_jparse_tuple(sh_jparser *p, bool with_cond)
{
    return parse_tuple(p, (tuple_mode){.with_cond = with_cond});
}

static sh_jnode *parse_list(sh_jparser *p)
{
    sh_jnode *node = sh_jparser_node(p, SH_JN_LIST, sh_jparser_next(p).line);
    while (p->token.type != SH_JT_RBRACKET) {
        if (node->u.items.count > 0) {
            sh_jparser_expect(p, SH_JT_COMMA);
            if (p->token.type == SH_JT_RBRACKET) break;
        }
        sh_jnodes_add(&node->u.items, sh_jparse_expr(p, true));
    }
    sh_jparser_expect(p, SH_JT_RBRACKET);
    return node;
}

static sh_jnode *parse_dict(sh_jparser *p)
{
    sh_jnode *node = sh_jparser_node(p, SH_JN_DICT, sh_jparser_next(p).line);
    while (p->token.type != SH_JT_RBRACE) {
        if (node->u.items.count > 0) {
            sh_jparser_expect(p, SH_JT_COMMA);
            if (p->token.type == SH_JT_RBRACE) break;
        }
        sh_jnodes_add(&node->u.items, sh_jparse_expr(p, true));
        sh_jparser_expect(p, SH_JT_COLON);
        sh_jnodes_add(&node->u.items, sh_jparse_expr(p, true));
    }
    sh_jparser_expect(p, SH_JT_RBRACE);
    return node;
}

/* The constants are keywords in both spellings, Jinja's and Python's. */
static sh_jnode *parse_name(sh_jparser *p, bool with_ns)
{
    sh_jtoken name = sh_jparser_next(p);
    bool is_true = sh_str_is(name.text, "true") || sh_str_is(name.text, "True");
    if (is_true || sh_str_is(name.text, "false") || sh_str_is(name.text, "False"))
        return const_node(p, name.line, sh_jv_bool(is_true));
    if (sh_str_is(name.text, "none") || sh_str_is(name.text, "None"))
        return const_node(p, name.line, SH_JV_NULL);
    bool ns = with_ns && sh_jparser_skip(p, SH_JT_DOT);
    sh_jnode *node = sh_jparser_node(p, ns ? SH_JN_NSREF : SH_JN_NAME, name.line);
    node->u.name.sym = sh_jparser_sym(p, name.text);
    if (ns) node->u.name.attr = sh_jparser_str(p, sh_jparser_expect(p, SH_JT_NAME).text);
    return node;
}

/* Adjacent strings are concatenated, as in Python. */
static sh_jnode *parse_string(sh_jparser *p)
{
    int line = p->token.line;
    sh_str text = sh_jparser_next(p).text;
    if (p->token.type == SH_JT_STRING) {
        size_t mark = sh_jrun_mark(p->run);
        sh_jrun_put(p->run, text);
        while (p->token.type == SH_JT_STRING) sh_jrun_put(p->run, sh_jparser_next(p).text);
        return const_node(p, line, sh_jv_of_str(sh_jrun_take(p->run, mark)));
    }
    return const_node(p, line, sh_jv_of_str(sh_jparser_str(p, text)));
}

static sh_jnode *parse_primary(sh_jparser *p, bool with_ns)
{
    sh_jtoken token = p->token;
    switch (token.type) {
    case SH_JT_NAME: return parse_name(p, with_ns);
    case SH_JT_STRING: return parse_string(p);
    case SH_JT_INT:
    case SH_JT_FLOAT: return const_node(p, token.line, sh_jparser_next(p).value);
    case SH_JT_LPAREN: {
        sh_jparser_next(p);
        sh_jnode *node = parse_tuple(p, (tuple_mode){.with_cond = true, .in_parens = true});
        sh_jparser_expect(p, SH_JT_RPAREN);
        return node;
    }
    case SH_JT_LBRACKET: return parse_list(p);
    case SH_JT_LBRACE: return parse_dict(p);
    default: break;
    }
    sh_str got = sh_jtoken_describe(&token);
    sh_jparser_fail(p, token.line, "unexpected '%.*s'", (int)got.len, got.ptr);
}

/* Assignment targets are parsed as expressions and then checked. */

/* Turns an expression into an assignment target, or fails if it cannot be one. */
static void target_check(sh_jparser *p, sh_jnode *node)
{
    static const char *const kinds[] = {
        [SH_JN_CONST] = "const", [SH_JN_LIST] = "list", [SH_JN_DICT] = "dict"};
    if (node->type == SH_JN_TUPLE) {
        for (sh_jnode *item = node->u.items.head; item != NULL; item = item->next)
            target_check(p, item);
    } else if (node->type == SH_JN_NAME) {
        if (p->loops_all > 0 && sh_str_is(sh_jstr_str(node->u.name.sym->text), "loop"))
            sh_jparser_fail(p, node->line,
                            "Can't assign to special loop variable in for-loop target");
        node->u.name.use = SH_JNAME_STORE;
    } else if (node->type != SH_JN_NSREF) {
        const char *kind = node->type < SH_COUNT_OF(kinds) ? kinds[node->type] : NULL;
        sh_jparser_fail(p, node->line, "can't assign to '%s'", kind == NULL ? "expression" : kind);
    }
}

sh_jnode *sh_jparse_target(sh_jparser *p, bool with_ns)
{
    sh_jnode *node = parse_tuple(p, (tuple_mode){.simple = true, .with_ns = with_ns});
    target_check(p, node);
    return node;
}

/* A single name, for macros and their parameters. */
sh_jnode *sh_jparse_name_target(sh_jparser *p)
{
    sh_jtoken name = sh_jparser_expect(p, SH_JT_NAME);
    static const char *const taken[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < SH_COUNT_OF(taken); i++)
        if (sh_str_is(name.text, taken[i])) sh_jparser_fail(p, name.line, "can't assign to 'name'");
    sh_jnode *node = sh_jparser_node(p, SH_JN_NAME, name.line);
    node->u.name.sym = sh_jparser_sym(p, name.text);
    node->u.name.use = SH_JNAME_PARAM;
    return node;
}
