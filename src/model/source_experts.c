/* Where experts are stored. MLX stacks them in one tensor. Hugging Face has a tensor for each
 * expert, or stacks with gate and up fused: one after the other, except in gpt_oss, which
 * interleaves their rows, and where tensors are either plain and transposed, or mxfp4 in blocks. */
#include "model/source.h"

#include <stdio.h>
#include <string.h>

enum { NAME_LEN_MAX = 384 };

typedef struct {
    const char *folder;
    const char *part[3]; /* by sh_expert_part */
} names_row;

/* One tensor for all experts. */
static const names_row STACKS[] = {
    {"switch_mlp", {"gate_proj", "up_proj", "down_proj"}},
    {"experts", {"gate_proj", "up_proj", "down_proj"}},
};

/* One tensor for each expert. */
static const names_row EACH[] = {
    {"experts", {"gate_proj", "up_proj", "down_proj"}},
    {"experts", {"w1", "w3", "w2"}},
};

static int64_t part_rows(const sh_config *c, sh_expert_part part)
{
    return part == SH_EXPERT_DOWN ? c->hidden : c->moe.ffn;
}

static int64_t part_cols(const sh_config *c, sh_expert_part part)
{
    return part == SH_EXPERT_DOWN ? c->moe.ffn : c->hidden;
}

static void spread(const sh_source *stack, int experts, sh_source *out)
{
    for (int e = 0; e < experts; e++) out[e] = sh_source_at(stack, e);
}

static sh_status find_each(const sh_finder *f, const char *path, const names_row *row,
                           sh_expert_part part, sh_source *out)
{
    char name[NAME_LEN_MAX];
    for (int e = 0; e < f->config->moe.experts; e++) {
        snprintf(name, sizeof(name), "%s.%s.%d.%s", path, row->folder, e, row->part[part]);
        sh_status status = sh_source_find(f, name, 0, part_rows(f->config, part),
                                          part_cols(f->config, part), &out[e]);
        if (status != SH_OK) return status;
        /* In memory the experts of a layer are one stack, which has one format. */
        if (out[e].bias != NULL || memcmp(&out[e].quant, &out[0].quant, sizeof(out[0].quant)) != 0)
            return sh_err_set(f->err, SH_ERR_UNSUPPORTED,
                              "%s: '%s' has a bias, or is stored in another format than expert 0",
                              sh_tensors_path(f->set, out[e].w), name);
    }
    return SH_OK;
}

/* Hugging Face names the tensors of a stack `base` plus a suffix, without ".weight". */
static sh_status hub_tensor(const sh_finder *f, const char *base, const char *end,
                            sh_tensor_type type, int dims, const int64_t *shape,
                            const sh_stored_tensor **out)
{
    char name[2 * NAME_LEN_MAX];
    snprintf(name, sizeof(name), "%s%s", base, end);
    return sh_source_tensor(f, name, type, dims, shape, out);
}

/* mxfp4 as blocks [experts, rows, groups, 16 bytes] and scales [experts, rows, groups]. Both are
 * contiguous, so they read like the packed rows of MLX. */
static sh_status find_blocks(const sh_finder *f, const char *base, sh_source *stack)
{
    int64_t shape[4] = {f->config->moe.experts, stack->file_rows, stack->cols / 32, 16};
    stack->quant = (sh_quant){.format = SH_FORMAT_MXFP4, .bits = 4, .group = 32, .global_scale = 1};
    if (stack->cols % 32 != 0)
        return sh_err_set(f->err, SH_ERR_INPUT, "%s: '%s_blocks' needs a multiple of 32 columns",
                          sh_tensors_where(f->set), base);
    sh_status status = hub_tensor(f, base, "_blocks", SH_TENSOR_U8, 4, shape, &stack->w);
    if (status == SH_OK)
        status = hub_tensor(f, base, "_scales", SH_TENSOR_U8, 3, shape, &stack->scales);
    return status;
}

/* Plain as [experts, rows, cols], or transposed. */
static sh_status find_plain_stack(const sh_finder *f, const char *base, bool transposed,
                                  sh_source *stack)
{
    int64_t rows = stack->file_rows, cols = stack->cols;
    int64_t shape[3] = {f->config->moe.experts, transposed ? cols : rows, transposed ? rows : cols};
    sh_status status = hub_tensor(f, base, "", SH_TENSOR_OTHER, 3, shape, &stack->w);
    if (status != SH_OK) return status;
    stack->transposed = transposed;
    stack->quant = sh_quant_plain(stack->w);
    return SH_OK;
}

static sh_status find_hub_stack(const sh_finder *f, const char *base, sh_expert_part part,
                                sh_source *out)
{
    /* Only gpt_oss has biases on its experts; its gate rows are the even ones, its up rows the odd
     * ones. */
    bool gpt_oss = f->config->moe.all_biases, down = part == SH_EXPERT_DOWN;
    int64_t rows = part_rows(f->config, part), up_first = gpt_oss ? 1 : rows;
    sh_source stack = {.rows = rows,
                       .cols = part_cols(f->config, part),
                       .file_rows = down ? rows : 2 * rows,
                       .row_first = part == SH_EXPERT_UP ? up_first : 0,
                       .row_step = gpt_oss && !down ? 2 : 1};
    sh_status status = sh_finder_find(f, "%s_blocks", base) != NULL
                           ? find_blocks(f, base, &stack)
                           : find_plain_stack(f, base, gpt_oss, &stack);
    int64_t bias_shape[2] = {f->config->moe.experts, stack.file_rows};
    if (status == SH_OK && gpt_oss)
        status = hub_tensor(f, base, "_bias", SH_TENSOR_OTHER, 2, bias_shape, &stack.bias);
    if (status == SH_OK) spread(&stack, f->config->moe.experts, out);
    return status;
}

sh_status sh_source_experts(const sh_finder *f, const char *path, sh_expert_part part,
                            sh_source *out)
{
    char name[NAME_LEN_MAX];
    const sh_config *c = f->config;
    for (size_t i = 0; i < SH_COUNT_OF(STACKS); i++) {
        snprintf(name, sizeof(name), "%s.%s.%s", path, STACKS[i].folder, STACKS[i].part[part]);
        if (!sh_source_exists(f, name)) continue;
        sh_source stack;
        sh_status status = sh_source_find(f, name, c->moe.experts, part_rows(c, part),
                                          part_cols(c, part), &stack);
        if (status == SH_OK) spread(&stack, c->moe.experts, out);
        return status;
    }
    for (size_t i = 0; i < SH_COUNT_OF(EACH); i++) {
        snprintf(name, sizeof(name), "%s.%s.0.%s", path, EACH[i].folder, EACH[i].part[part]);
        if (sh_source_exists(f, name)) return find_each(f, path, &EACH[i], part, out);
    }
    snprintf(name, sizeof(name), "%s.experts.%s", path,
             part == SH_EXPERT_DOWN ? "down_proj" : "gate_up_proj");
    if (sh_finder_find(f, "%s", name) != NULL || sh_finder_find(f, "%s_blocks", name) != NULL)
        return find_hub_stack(f, name, part, out);
    return sh_err_set(f->err, SH_ERR_NOT_FOUND,
                      "%s: no experts in '%s', tried %s.switch_mlp and %s.experts",
                      sh_tensors_where(f->set), path, path, path);
}
