/* config_read.h - shared by the files that read config.json; not for other layers.
 *
 * A reader is a JSON object and the name that errors call it by. The getters leave *out alone when
 * the key is absent, so set the default before the call.
 *
 * Threads: pure functions. */
#ifndef SH_MODEL_CONFIG_READ_H
#define SH_MODEL_CONFIG_READ_H

#include "base/json.h"
#include "model/config.h"

typedef struct {
    const cJSON *json;
    const char *where;
    sh_err *err;
} sh_config_reader;

enum { SH_CONFIG_WIDTH_MAX = 1 << 20, SH_CONFIG_COUNT_MAX = 4096 };

SH_MUST_CHECK sh_status sh_read_int(const sh_config_reader *in, const char *key, int min, int max,
                                    int *out);
SH_MUST_CHECK sh_status sh_read_int_must(const sh_config_reader *in, const char *key, int min,
                                         int max, int *out);
SH_MUST_CHECK sh_status sh_read_float(const sh_config_reader *in, const char *key, double min,
                                      double max, float *out);
SH_MUST_CHECK sh_status sh_read_double(const sh_config_reader *in, const char *key, double min,
                                       double max, double *out);
/* Fails when the key is absent. For keys whose default differs between families, or between
 * implementations of one family: guessing would give wrong results silently. */
SH_MUST_CHECK sh_status sh_read_must(const sh_config_reader *in, const char *key);
SH_MUST_CHECK sh_status sh_read_bool(const sh_config_reader *in, const char *key, bool *out);

/* Refuses any value but `only`; the key may be absent. */
SH_MUST_CHECK sh_status sh_read_only(const sh_config_reader *in, const char *key, const char *only);

/* The value of key; NULL when it is absent or null. */
const cJSON *sh_read_item(const sh_config_reader *in, const char *key);

/* Sets the window of each layer, and its mixer in a family with convolutions or gated delta nets
 * (config->conv or config->delta is set then): by `layer_types` if the file has it, else `window`
 * on every layer for which every == 0 or (index + 1) % every != 0. `sliding_window` overrides
 * `window`. */
SH_MUST_CHECK sh_status sh_read_layer_windows(const sh_config_reader *in, int window, int every,
                                              sh_config *config);

/* Sets out[i] for each layer i in the list `key`, which may be absent; out has `layers` entries. */
SH_MUST_CHECK sh_status sh_read_layer_list(const sh_config_reader *in, const char *key, int layers,
                                           bool *out);

/* Reads all RoPE keys, in either spelling; sets config->rope and rope_count. */
SH_MUST_CHECK sh_status sh_read_rope(const sh_config_reader *in, sh_config *config);

/* Reads one set of RoPE keys from `params`, which may be NULL. partial_rotary_factor and
 * original_max_position_embeddings may also be in `in`. */
SH_MUST_CHECK sh_status sh_read_rope_params(const sh_config_reader *in, const cJSON *params,
                                            const sh_config *config, sh_arena *arena,
                                            sh_rope_config *rope);

SH_MUST_CHECK sh_status sh_read_quant(const sh_config_reader *in, sh_config *config);

#endif
