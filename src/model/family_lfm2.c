/* LFM2: layers with attention, and layers with a gated short convolution in its place. */
#include "model/family.h"

/* Files name the layers with attention in one of two ways; without either, all have it. */
static sh_status read_layers(const sh_config_reader *in, sh_config *config)
{
    if (sh_read_item(in, "layer_types") != NULL) return sh_read_layer_windows(in, 0, 0, config);
    if (sh_read_item(in, "full_attn_idxs") == NULL) return SH_OK;
    bool *full = sh_arena_array(&config->arena, (size_t)config->layers, sizeof(*full));
    sh_status status = sh_read_layer_list(in, "full_attn_idxs", config->layers, full);
    for (int i = 0; i < config->layers && status == SH_OK; i++)
        if (!full[i]) config->layer[i].mixer = SH_MIXER_SHORT_CONV;
    return status;
}

/* The width of the feed-forward is derived from a nominal one, unless the file says that it is
 * meant as it stands. */
static sh_status read_ffn(const sh_config_reader *in, sh_config *config)
{
    bool adjust = true;
    int multiple = 256;
    double factor = 1;
    sh_status status;
    if ((status = sh_read_int(in, "block_ff_dim", 1, SH_CONFIG_WIDTH_MAX, &config->ffn)) != 0 ||
        (status = sh_read_bool(in, "block_auto_adjust_ff_dim", &adjust)) != 0 ||
        (status = sh_read_int(in, "block_multiple_of", 1, SH_CONFIG_WIDTH_MAX, &multiple)) != 0 ||
        (status = sh_read_double(in, "block_ffn_dim_multiplier", 0.01, 8, &factor)) != 0)
        return status;
    if (!adjust) return SH_OK;
    int64_t width = (int64_t)(factor * (double)(2 * (int64_t)config->ffn / 3));
    width = (width + multiple - 1) / multiple * multiple;
    if (config->ffn > 0 && (width < 1 || width > SH_CONFIG_WIDTH_MAX))
        return sh_err_set(in->err, SH_ERR_INPUT,
                          "%s: the feed-forward would be %lld wide, allowed are 1 to %d", in->where,
                          (long long)width, SH_CONFIG_WIDTH_MAX);
    config->ffn = (int)width;
    return SH_OK;
}

sh_status sh_family_lfm2(const sh_config_reader *in, sh_config *config)
{
    sh_conv_config *conv = &config->conv;
    bool tied = true;
    sh_status status;
    conv->channels = config->hidden;
    conv->taps = 3;
    config->rope[0].theta = 1000000;
    if ((status = sh_read_int(in, "conv_L_cache", 2, SH_CONV_TAPS_MAX, &conv->taps)) != 0 ||
        (status = sh_read_bool(in, "conv_bias", &conv->bias)) != 0 ||
        (status = sh_read_int(in, "conv_dim", config->hidden, config->hidden, &conv->channels)) !=
            0 ||
        (status = sh_read_bool(in, "tie_embedding", &tied)) != 0 ||
        (status = read_layers(in, config)) != 0)
        return status;
    if (config->tied == SH_TIED_UNSPECIFIED || sh_read_item(in, "tie_embedding") != NULL)
        config->tied = tied ? SH_TIED_YES : SH_TIED_NO;
    return read_ffn(in, config);
}
