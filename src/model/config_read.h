/* config_read.h - what the files that read config.json share; not for other layers.
 *
 * A reader is the JSON object with its name for errors. The getters leave *out alone when the key
 * is absent, so defaults are set before the call.
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
/* Refuses the absence of a key: for those that families, or their makers, take as different numbers
 * when they are not there. */
SH_MUST_CHECK sh_status sh_read_must(const sh_config_reader *in, const char *key);
SH_MUST_CHECK sh_status sh_read_bool(const sh_config_reader *in, const char *key, bool *out);

/* Refuses a value other than `only`; absent is fine. */
SH_MUST_CHECK sh_status sh_read_only(const sh_config_reader *in, const char *key, const char *only);

/* The object or array at key; NULL when absent or null. */
const cJSON *sh_read_item(const sh_config_reader *in, const char *key);

/* Where each layer's attention looks: `layer_types` if it is there, else `window` on every
 * layer for which every == 0 or (index + 1) % every != 0. */
SH_MUST_CHECK sh_status sh_read_layer_windows(const sh_config_reader *in, int window, int every,
                                              sh_config *config);

/* Every key of RoPE in both spellings; sets config->rope and rope_count. */
SH_MUST_CHECK sh_status sh_read_rope(const sh_config_reader *in, sh_config *config);

/* One set of RoPE keys; `params` may be NULL. Keys that are not in it are looked for in `in`. */
SH_MUST_CHECK sh_status sh_read_rope_params(const sh_config_reader *in, const cJSON *params,
                                            const sh_config *config, sh_arena *arena,
                                            sh_rope_config *rope);

SH_MUST_CHECK sh_status sh_read_quant(const sh_config_reader *in, sh_config *config);

#endif
