/* A hostile config.json: rejected with an error of one line, or usable for planning. */
#include "model/rope.h"
#include "model/shard.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const sh_config *config)
{
    sh_err err = {0};
    sh_shard shards[6];
    sh_rope rope;
    for (int i = 0; i < config->rope_count; i++) {
        float *freq = malloc((size_t)config->rope[i].dim * sizeof(*freq));
        sh_rope_init(&config->rope[i], false, freq, &rope);
        sh_rope_init(&config->rope[i], true, freq, &rope);
        SH_ASSERT(rope.scale == rope.scale);
        free(freq);
    }
    if (sh_shard_plan(config, &(sh_plan_opts){3, 2, NULL, 0}, shards, &err) != SH_OK) return;
    SH_ASSERT(shards[0].layer_count + shards[3].layer_count == config->layers);
    SH_ASSERT(shards[2].vocab.first + shards[2].vocab.count == config->vocab);
    for (int i = 0; i < config->layers; i++)
        SH_ASSERT(sh_config_kv_width(config, i) > 0 ||
                  config->layer[i].mixer == SH_MIXER_SHORT_CONV);
    SH_ASSERT(shards[2].conv.first + shards[2].conv.count == config->conv.channels);
    (void)sh_config_quant(config, "lm_head");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sh_err err = {0};
    sh_config config;
    if (sh_config_parse((sh_str){(const char *)data, size}, "fuzz", &config, &err) == SH_OK) {
        use(&config);
        sh_config_reset(&config);
    } else {
        SH_ASSERT(err.text[0] != '\0');
    }
    return 0;
}
