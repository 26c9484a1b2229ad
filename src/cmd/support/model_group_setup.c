/* Settings to options of a model group. With several ranks the identity of the model becomes part
 * of the handshake, so that ranks with different models refuse each other. */
#include "cmd/support/model_group_setup.h"

#include "cmd/support/compute.h"
#include "cmd/support/model_pull.h"
#include "model/identity.h"
#include "share/shard_cache.h"

#include <string.h>

/* "auto" is tensor parallelism: all ranks work on every layer. */
sh_status sh_parallel_parse(const char *text, int size, sh_model_group_opts *opts, sh_err *err)
{
    sh_str rest = sh_str_of(text), tensor;
    int64_t t, p;
    if (strcmp(text, "auto") == 0 || strcmp(text, "tensor") == 0) {
        opts->tensor = size;
        opts->stages = 1;
    } else if (strcmp(text, "pipeline") == 0) {
        opts->tensor = 1;
        opts->stages = size;
    } else if (sh_str_cut(&rest, 'x', &tensor) && sh_str_to_int(tensor, &t) &&
               sh_str_to_int(rest, &p) && t > 0 && p > 0 && (t * p == size || size == 0)) {
        opts->tensor = (int)t;
        opts->stages = (int)p;
    } else {
        return sh_err_set(err, SH_ERR_INPUT,
                          "--parallel: '%s' is not allowed; it takes tensor, pipeline, auto, or "
                          "TxP with T*P = %d ranks",
                          text, size);
    }
    return SH_OK;
}

/* One share per rank; 0 is allowed: such a rank gets no part of what is split. */
static sh_status split_parse(const char *text, int size, sh_model_group_setup *setup, sh_err *err)
{
    sh_str rest = sh_str_of(text), part;
    int count = 0;
    while (sh_str_cut(&rest, ',', &part)) {
        double value;
        if (!sh_str_to_double(part, &value) || value < 0 || count == size)
            return sh_err_set(err, SH_ERR_INPUT,
                              "--split: '%s' is not allowed; it takes %d shares such as 3,1", text,
                              size);
        setup->split[count++] = value;
    }
    if (count != size)
        return sh_err_set(err, SH_ERR_INPUT, "--split: '%s' has %d shares for %d ranks", text,
                          count, size);
    setup->opts.split = setup->split;
    setup->opts.split_count = count;
    return SH_OK;
}

/* Tensor or pipeline parallelism by name is for any number of ranks: it may change. */
static void grid_leave_open(const char *text, sh_model_group_opts *opts)
{
    if (strcmp(text, "pipeline") == 0)
        opts->stages = 0;
    else if (strchr(text, 'x') == NULL)
        opts->tensor = 0;
}

/* A hub is opened to find out now whether that works; the process has no other threads yet, as the
 * first one needs it. */
static sh_status hub_init(const sh_settings *s, const sh_share_hub **out, sh_err *err)
{
    static sh_share_hub hub; /* made once, and kept */
    sh_hub *opened = NULL;
    if (s->offline)
        return sh_err_set(err, SH_ERR_INPUT,
                          "--shares-from hub downloads weights, but --offline forbids that; use "
                          "--shares-from rank0");
    if (hub.endpoint == NULL)
        hub = (sh_share_hub){s->hf_endpoint, sh_model_pull_token(s), s->hub_timeout * 1000};
    sh_hub_opts opts = {.endpoint = hub.endpoint, .token = hub.token, .timeout_ms = hub.timeout_ms};
    sh_status status = sh_hub_open(&opts, &opened, err);
    sh_hub_close(opened);
    if (status != SH_OK) return sh_err_prefix(err, "--shares-from hub");
    *out = &hub;
    return SH_OK;
}

/* A rank other than rank 0 can do without a copy of the model. */
static sh_status source_init(sh_model_group_setup *setup, const sh_settings *s, sh_err *err)
{
    static char *root; /* found once, and kept */
    sh_mesh_opts *mesh = &setup->ranks.opts.mesh;
    sh_status status = SH_OK;
    if (mesh->rank == 0) return sh_err_set(err, SH_ERR_INPUT, "no model given: --model DIR");
    sh_model_id_set_any(mesh->model);
    if (root == NULL) status = sh_shard_cache_root(&root, err);
    setup->shard_cache = root;
    if (status == SH_OK && strcmp(s->shares_from, "hub") == 0)
        status = hub_init(s, &setup->hub, err);
    return status;
}

/* setup->opts.split points into setup itself, which is why it must not move. */
sh_status sh_model_group_setup_init(sh_model_group_setup *setup, const sh_command_args *args,
                                    sh_err *err)
{
    const sh_settings *s = args->settings;
    memset(setup, 0, sizeof(*setup));
    sh_status status = sh_ranks_init(&setup->ranks, args, err);
    if (status == SH_OK && s->model == NULL) status = source_init(setup, s, err);
    if (status != SH_OK) return status;
    int size = setup->ranks.opts.mesh.size;
    setup->opts = (sh_model_group_opts){
        .model_dir = s->model,
        .shard_cache = setup->shard_cache,
        .shard_cache_limit = (uint64_t)s->shard_cache,
        .hub = setup->hub,
        .device_opts = sh_compute_device(s),
        .kv_format = sh_compute_kv(s),
        .wire = setup->ranks.wire,
        .context = (int)s->context,
        .rebalance = s->rebalance,
        .load = {.threads = (int)s->threads, .exact = strcmp(s->activations, "f32") == 0}};
    status = sh_parallel_parse(s->parallel, size, &setup->opts, err);
    grid_leave_open(s->parallel, &setup->opts);
    setup->opts.ranks = size;
    if (status == SH_OK && s->split != NULL && s->rebalance)
        status = sh_err_set(err, SH_ERR_INPUT,
                            "--rebalance chooses the shares that --split fixes; use one of them");
    /* Rank 0 decides for a rank that is added. */
    if (status == SH_OK && s->split != NULL && size > 0)
        status = split_parse(s->split, size, setup, err);
    sh_identity identity;
    if (status == SH_OK && s->model != NULL && sh_ranks_form_group(&setup->ranks)) {
        status = sh_identity_read(s->model, &identity, err);
        if (status == SH_OK) memcpy(setup->ranks.opts.mesh.model, identity.id, sizeof(identity.id));
    }
    return status;
}

/* Outputs are set only on success; on failure both are closed in the order that close() needs. */
sh_status sh_model_group_setup_join(const sh_model_group_setup *setup, sh_model_group **model_group,
                                    sh_group **group, sh_err *err)
{
    sh_model_group *c = NULL;
    sh_group *g = NULL;
    sh_status status = sh_model_group_open(&setup->opts, &c, err);
    if (status == SH_OK && sh_ranks_form_group(&setup->ranks))
        status = sh_group_open(&setup->ranks.opts, &g, err);
    if (status == SH_OK) status = sh_model_group_join(c, g, err);
    if (status != SH_OK) {
        if (g != NULL)
            sh_group_close(g); /* first: it may still write into the model group's memory */
        sh_model_group_close(c);
        return status;
    }
    *model_group = c;
    *group = g;
    return SH_OK;
}
