/* One table names every key with its kind and place; libyaml reads the file into a tree, which is
 * walked as far as the table goes: aliases may make cycles of it, but not of the table. */
#include "store/definition.h"

#include "base/alloc.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <yaml.h>

enum { FILE_MAX = 1 << 20, ITEMS_MAX = 1000, NAME_SHOWN = 80 };

typedef enum {
    TEXT,
    NUMBER,
    COUNT, /* -1, a whole number from 0 */
    FLAG,
    LIST,
    SECTION,     /* of keys that have its name before theirs */
    NO_EFFECT,   /* known to LocalAI */
    GO_TEMPLATE, /* refused */
} key_kind;

typedef struct {
    const char *name; /* "section.key" */
    key_kind kind;
    size_t offset;
    double min, max;
} key_row;

#define AT(member) .offset = offsetof(sh_definition, member)

static const key_row keys[] = {
    {"name", TEXT, AT(name)},
    {"backend", TEXT, AT(backend)},
    {.name = "parameters", .kind = SECTION},
    {"parameters.model", TEXT, AT(model)},
    {"parameters.temperature", NUMBER, AT(temperature), .max = 2},
    {"parameters.top_p", NUMBER, AT(top_p), .max = 1},
    {"parameters.min_p", NUMBER, AT(min_p), .max = 1},
    {"parameters.top_k", COUNT, AT(top_k), .max = 1 << 24},
    {"parameters.max_tokens", COUNT, AT(max_tokens), .max = 1 << 24},
    {"parameters.seed", COUNT, AT(seed), .min = -1, .max = 9007199254740992.0},
    {"parameters.repeat_penalty", NUMBER, AT(repeat_penalty), .min = 0.01, .max = 10},
    {"parameters.frequency_penalty", NUMBER, AT(frequency_penalty), .min = -2, .max = 2},
    {"parameters.presence_penalty", NUMBER, AT(presence_penalty), .min = -2, .max = 2},
    {.name = "parameters.typical_p", .kind = NO_EFFECT},
    {.name = "parameters.echo", .kind = NO_EFFECT},
    {.name = "parameters.n", .kind = NO_EFFECT},
    {"context_size", COUNT, AT(context_size), .max = 1 << 24},
    {"options", LIST, AT(options)},
    {"stopwords", LIST, AT(stopwords)},
    {"system_prompt", TEXT, AT(system_prompt)},
    {"draft_model", TEXT, AT(draft_model)},
    {.name = "template", .kind = SECTION},
    {"template.use_tokenizer_template", FLAG, AT(use_tokenizer_template)},
    {.name = "template.chat", .kind = GO_TEMPLATE},
    {.name = "template.chat_message", .kind = GO_TEMPLATE},
    {.name = "template.completion", .kind = GO_TEMPLATE},
    {.name = "template.function", .kind = GO_TEMPLATE},
    {.name = "template.edit", .kind = GO_TEMPLATE},
    {.name = "threads", .kind = NO_EFFECT},
    {.name = "f16", .kind = NO_EFFECT},
    {.name = "mmap", .kind = NO_EFFECT},
    {.name = "mmlock", .kind = NO_EFFECT},
    {.name = "gpu_layers", .kind = NO_EFFECT},
    {.name = "batch", .kind = NO_EFFECT},
    {.name = "embeddings", .kind = NO_EFFECT},
    {.name = "trust_remote_code", .kind = NO_EFFECT},
    {.name = "n_draft", .kind = NO_EFFECT},
    {.name = "tensor_parallel_size", .kind = NO_EFFECT},
    {.name = "max_model_len", .kind = NO_EFFECT},
    {.name = "gpu_memory_utilization", .kind = NO_EFFECT},
    {.name = "dtype", .kind = NO_EFFECT},
    {.name = "quantization", .kind = NO_EFFECT},
    {.name = "engine_args", .kind = NO_EFFECT},
    {.name = "grammar", .kind = NO_EFFECT},
    {.name = "function", .kind = NO_EFFECT},
    {.name = "reasoning", .kind = NO_EFFECT},
    {.name = "roles", .kind = NO_EFFECT},
    {.name = "cutstrings", .kind = NO_EFFECT},
    {.name = "extract_regex", .kind = NO_EFFECT},
    {.name = "trimspace", .kind = NO_EFFECT},
    {.name = "limits", .kind = NO_EFFECT},
    {.name = "known_usecases", .kind = NO_EFFECT},
    {.name = "description", .kind = NO_EFFECT},
    {.name = "usage", .kind = NO_EFFECT},
};

/* A file while it is read. */
typedef struct {
    yaml_document_t *document;
    const char *where;
    sh_definition *out;
    bool seen[SH_COUNT_OF(keys)];
    sh_err *err;
} reader;

static size_t line_of(const yaml_node_t *node)
{
    return node->start_mark.line + 1;
}

static sh_str text_of(const yaml_node_t *node)
{
    if (node == NULL || node->type != YAML_SCALAR_NODE) return (sh_str){NULL, 0};
    return (sh_str){(const char *)node->data.scalar.value, node->data.scalar.length};
}

static sh_status refuse(const reader *r, const yaml_node_t *at, const char *key, const char *must)
{
    return sh_err_set(r->err, SH_ERR_INPUT, "%s:%zu: '%s' must be %s", r->where, line_of(at), key,
                      must);
}

/* A text without zero bytes: libyaml has checked that it is UTF-8. */
static bool plain_text(const yaml_node_t *node, sh_str *out)
{
    *out = text_of(node);
    return out->ptr != NULL && memchr(out->ptr, '\0', out->len) == NULL;
}

static sh_status number_read(const reader *r, const key_row *row, const yaml_node_t *node)
{
    char must[96];
    double value;
    bool whole = row->kind == COUNT;
    snprintf(must, sizeof(must), "a %snumber from %g to %g", whole ? "whole " : "", row->min,
             row->max);
    sh_str text = text_of(node);
    if (text.ptr == NULL || !sh_str_to_double(text, &value) ||
        !(value >= row->min && value <= row->max) || (whole && floor(value) != value))
        return refuse(r, node, row->name, must);
    char *at = (char *)r->out + row->offset;
    if (whole)
        *(int64_t *)(void *)at = (int64_t)value;
    else
        *(double *)(void *)at = value;
    return SH_OK;
}

/* YAML has many words for them. */
static sh_status flag_read(const reader *r, const key_row *row, const yaml_node_t *node)
{
    static const char *const words[] = {"false", "no", "off", "true", "yes", "on"};
    sh_str text = text_of(node);
    for (size_t i = 0; text.ptr != NULL && i < SH_COUNT_OF(words); i++) {
        if (strlen(words[i]) != text.len || strncasecmp(words[i], text.ptr, text.len) != 0)
            continue;
        *(int64_t *)(void *)((char *)r->out + row->offset) = i >= SH_COUNT_OF(words) / 2;
        return SH_OK;
    }
    return refuse(r, node, row->name, "true or false");
}

static sh_status list_read(const reader *r, const key_row *row, const yaml_node_t *node)
{
    sh_definition_list *list = (sh_definition_list *)(void *)((char *)r->out + row->offset);
    if (node->type != YAML_SEQUENCE_NODE) return refuse(r, node, row->name, "a list of texts");
    size_t count = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    if (count > ITEMS_MAX) return refuse(r, node, row->name, "a list of at most 1000 texts");
    list->items = sh_alloc_array(count + 1, sizeof(*list->items));
    for (size_t i = 0; i < count; i++) {
        const yaml_node_t *item = yaml_document_get_node(r->document,
                                                         node->data.sequence.items.start[i]);
        sh_str text;
        if (!plain_text(item, &text)) return refuse(r, node, row->name, "a list of texts");
        list->items[list->count++] = sh_str_dup(text);
    }
    return SH_OK;
}

static sh_status text_read(const reader *r, const key_row *row, const yaml_node_t *node)
{
    sh_str text;
    if (!plain_text(node, &text)) return refuse(r, node, row->name, "a text");
    *(char **)(void *)((char *)r->out + row->offset) = sh_str_dup(text);
    return SH_OK;
}

static sh_status section_read(reader *r, const char *section, const yaml_node_t *node);

static sh_status value_read(reader *r, const key_row *row, const yaml_node_t *node)
{
    switch (row->kind) {
    case TEXT: return text_read(r, row, node);
    case NUMBER:
    case COUNT: return number_read(r, row, node);
    case FLAG: return flag_read(r, row, node);
    case LIST: return list_read(r, row, node);
    case SECTION: return section_read(r, row->name, node);
    case NO_EFFECT:
        sh_buf_addf(&r->out->notes, "%s:%zu: '%s' has no effect here\n", r->where, line_of(node),
                    row->name);
        return SH_OK;
    case GO_TEMPLATE: break;
    }
    return sh_err_set(r->err, SH_ERR_UNSUPPORTED,
                      "%s:%zu: '%s' is a template in Go's language, which is not read here: remove "
                      "it, and the model's own template is used (use_tokenizer_template: true)",
                      r->where, line_of(node), row->name);
}

static int key_find(const char *section, sh_str name)
{
    size_t prefix = section == NULL ? 0 : strlen(section) + 1;
    for (size_t i = 0; i < SH_COUNT_OF(keys); i++) {
        const char *known = keys[i].name;
        bool inside = section == NULL
                          ? strchr(known, '.') == NULL
                          : strncmp(known, section, prefix - 1) == 0 && known[prefix - 1] == '.';
        if (inside && sh_str_is(name, known + prefix)) return (int)i;
    }
    return -1;
}

static sh_status pair_read(reader *r, const char *section, const yaml_node_pair_t *pair)
{
    const yaml_node_t *key = yaml_document_get_node(r->document, pair->key);
    const yaml_node_t *value = yaml_document_get_node(r->document, pair->value);
    sh_str name = text_of(key);
    int found = name.ptr == NULL ? -1 : key_find(section, name);
    int shown = (int)(name.len < NAME_SHOWN ? name.len : NAME_SHOWN);
    if (found < 0)
        return sh_err_set(r->err, SH_ERR_INPUT, "%s:%zu: unknown key '%s%s%.*s'", r->where,
                          line_of(key), section == NULL ? "" : section, section == NULL ? "" : ".",
                          shown, name.ptr == NULL ? "" : name.ptr);
    if (r->seen[found])
        return sh_err_set(r->err, SH_ERR_INPUT, "%s:%zu: '%s' is given twice", r->where,
                          line_of(key), keys[found].name);
    r->seen[found] = true;
    /* `key:` with nothing after it is how YAML writes that there is none. */
    bool empty = value->type == YAML_SCALAR_NODE && value->data.scalar.length == 0 &&
                 value->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return empty ? SH_OK : value_read(r, &keys[found], value);
}

static sh_status section_read(reader *r, const char *section, const yaml_node_t *node)
{
    sh_status status = SH_OK;
    if (node->type != YAML_MAPPING_NODE)
        return refuse(r, node, section == NULL ? "the file" : section, "a mapping of keys");
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         status == SH_OK && pair < node->data.mapping.pairs.top; pair++)
        status = pair_read(r, section, pair);
    return status;
}

static sh_status document_read(yaml_document_t *document, const char *where, sh_definition *out,
                               sh_err *err)
{
    reader r = {.document = document, .where = where, .out = out, .err = err};
    const yaml_node_t *root = yaml_document_get_root_node(document);
    if (root == NULL) return sh_err_set(err, SH_ERR_INPUT, "%s: the file is empty", where);
    sh_status status = section_read(&r, NULL, root);
    if (status != SH_OK) return status;
    if (out->name == NULL || out->name[0] == '\0')
        return sh_err_set(err, SH_ERR_INPUT, "%s: the key 'name' is missing", where);
    if (out->model == NULL || out->model[0] == '\0')
        return sh_err_set(err, SH_ERR_INPUT, "%s: the key 'parameters.model' is missing", where);
    return SH_OK;
}

static sh_status yaml_fail(const yaml_parser_t *parser, const char *where, sh_err *err)
{
    const char *problem = parser->problem == NULL ? "cannot be read" : parser->problem;
    return sh_err_set(err, SH_ERR_INPUT, "%s:%zu: not YAML: %s", where,
                      parser->problem_mark.line + 1, problem);
}

/* A file has one document; what follows would be lost without a word. */
static sh_status documents_read(yaml_parser_t *parser, const char *where, sh_definition *out,
                                sh_err *err)
{
    yaml_document_t document, next;
    if (!yaml_parser_load(parser, &document)) return yaml_fail(parser, where, err);
    sh_status status = document_read(&document, where, out, err);
    yaml_document_delete(&document);
    if (status != SH_OK) return status;
    if (!yaml_parser_load(parser, &next)) return yaml_fail(parser, where, err);
    const yaml_node_t *root = yaml_document_get_root_node(&next);
    if (root != NULL)
        status = sh_err_set(err, SH_ERR_INPUT, "%s:%zu: a file describes one model, not several",
                            where, line_of(root));
    yaml_document_delete(&next);
    return status;
}

sh_status sh_definition_parse(sh_str text, const char *where, sh_definition *out, sh_err *err)
{
    yaml_parser_t parser;
    *out = (sh_definition){.temperature = NAN,
                           .top_p = NAN,
                           .min_p = NAN,
                           .repeat_penalty = NAN,
                           .frequency_penalty = NAN,
                           .presence_penalty = NAN,
                           .top_k = -1,
                           .max_tokens = -1,
                           .seed = -1,
                           .context_size = -1,
                           .use_tokenizer_template = 1};
    if (!yaml_parser_initialize(&parser))
        return sh_err_set(err, SH_ERR_MEMORY, "%s: no memory for a parser", where);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.ptr, text.len);
    sh_status status = documents_read(&parser, where, out, err);
    yaml_parser_delete(&parser);
    return status;
}

static bool is_folder(const char *path)
{
    struct stat at;
    return stat(path, &at) == 0 && S_ISDIR(at.st_mode);
}

/* LocalAI's paths are relative to its folder of models, where the file is, too. */
static void model_place(const char *path, sh_definition *out)
{
    const char *slash = strrchr(path, '/');
    if (out->model[0] == '/' || slash == NULL) return;
    char *folder = sh_str_dup((sh_str){path, (size_t)(slash - path)});
    char *beside = sh_path_join(folder[0] == '\0' ? "/" : folder, out->model);
    free(folder);
    if (!is_folder(beside)) {
        free(beside);
        return;
    }
    free(out->model);
    out->model = beside;
}

sh_status sh_definition_load(const char *path, sh_definition *out, sh_err *err)
{
    sh_buf text = {0};
    *out = (sh_definition){0};
    sh_status status = sh_file_read(path, FILE_MAX, &text, err);
    if (status == SH_OK) status = sh_definition_parse(sh_buf_str(&text), path, out, err);
    if (status == SH_OK) model_place(path, out);
    if (status == SH_OK) out->file = sh_strdup(path);
    sh_buf_reset(&text);
    return status;
}

static void list_reset(sh_definition_list *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->items[i]);
    free(list->items);
}

void sh_definition_reset(sh_definition *definition)
{
    free(definition->file);
    free(definition->name);
    free(definition->backend);
    free(definition->model);
    free(definition->draft_model);
    free(definition->system_prompt);
    list_reset(&definition->options);
    list_reset(&definition->stopwords);
    sh_buf_reset(&definition->notes);
    *definition = (sh_definition){0};
}

bool sh_definition_is_file(const char *path)
{
    sh_str name = sh_str_of(path);
    return sh_str_ends(name, SH_STR(".yaml")) || sh_str_ends(name, SH_STR(".yml"));
}

/* ---- folders ---- */

static int by_name(const void *a, const void *b)
{
    const sh_definition *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : strcmp(x->file, y->file);
}

static void definition_add(const char *path, sh_definitions *out)
{
    sh_definition one;
    sh_err err;
    if (sh_definition_load(path, &one, &err) != SH_OK) {
        sh_buf_addf(&out->problems, "%s\n", err.text);
        sh_definition_reset(&one);
        return;
    }
    out->list = sh_realloc_array(out->list, out->count + 1, sizeof(*out->list));
    out->list[out->count++] = one;
}

/* Of several with one name the first file counts, in alphabetical order. */
static void doubles_drop(sh_definitions *all)
{
    size_t kept = 0;
    for (size_t i = 0; i < all->count; i++) {
        sh_definition *one = &all->list[i];
        if (kept > 0 && strcmp(all->list[kept - 1].name, one->name) == 0) {
            sh_buf_addf(&all->problems, "%s: %s defines a model '%s' already\n", one->file,
                        all->list[kept - 1].file, one->name);
            sh_definition_reset(one);
        } else {
            all->list[kept++] = *one;
        }
    }
    all->count = kept;
}

sh_status sh_definitions_load(const char *folder, sh_definitions *out, sh_err *err)
{
    *out = (sh_definitions){0};
    DIR *dir = opendir(folder);
    if (dir == NULL) return sh_err_sys(err, "%s", folder);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.' || !sh_definition_is_file(entry->d_name)) continue;
        char *path = sh_path_join(folder, entry->d_name);
        definition_add(path, out);
        free(path);
    }
    closedir(dir);
    if (out->count > 1) qsort(out->list, out->count, sizeof(*out->list), by_name);
    doubles_drop(out);
    return SH_OK;
}

void sh_definitions_reset(sh_definitions *definitions)
{
    for (size_t i = 0; i < definitions->count; i++) sh_definition_reset(&definitions->list[i]);
    free(definitions->list);
    sh_buf_reset(&definitions->problems);
    *definitions = (sh_definitions){0};
}
