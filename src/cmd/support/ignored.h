/* ignored.h - variables and flags of related projects that have no effect here, and why. Included
 * by options.c only. */
#ifndef SH_CMD_SUPPORT_IGNORED_H
#define SH_CMD_SUPPORT_IGNORED_H

#include "base/option.h"

#define NO_METAL "it applies to Apple's GPU only"
#define NO_NCCL "it belongs to the nccl backend, which is not built into this program"
#define MEMORY "memory is planned at load time: --kv-tokens and --kv-reserve-mb limit it"
#define TOO_COMMON "too many programs set a variable of this name"

static const sh_option_ignored ignored[] = {
    {.name = "POLL_INTERVAL_SECONDS",
     .why = "ranks wait for work without polling",
     .min = 1e-9,
     .max = 10},
    {.name = "MODEL_LOAD_WAIT_SECONDS",
     .why = "the API answers as soon as the model is loaded",
     .min = 0,
     .max = 1e9},
    {.name = "MAX_PROMPT_LEN_BYTES",
     .why = "a prompt may fill the context; --body-bytes limits a request",
     .min = 1,
     .max = 1e18},
    {.name = "REQUEST_FILE_PATH", .why = "API and engine talk over --socket"},
    {.name = "RESPONSE_FILE_PATH", .why = "API and engine talk over --socket"},
    {.name = "MLX_METAL_FAST_SYNCH", .why = NO_METAL},
    {.name = "MLX_RING_VERBOSE", .why = "--log-level debug shows the links"},
    {.name = "RDMA_DEVICES", .why = "the hostfile's rdma fields name the devices"},
    {.name = "RDMA_MAX_MB", .why = "`shoal linktest --sizes` names the sizes"},
    {.name = "BENCH_WARMUP", .why = "`shoal bench` warms up by itself", .min = 0, .max = 1e9},
    {.name = "NCCL_HOST_IP", .why = NO_NCCL},
    {.name = "NCCL_PORT", .why = NO_NCCL},
    {.name = "MLX_NCCL_TIMEOUT", .why = NO_NCCL},
    {.name = "VLLM_MLX_DISTRIBUTED", .why = "use --ranks or --hostfile"},
    {.name = "MLX_SYSTEM_RESERVE_GB", .why = MEMORY, .min = 0, .max = 1e6},
    {.name = "MLX_MAX_RAM_FRACTION", .why = MEMORY, .min = 0, .max = 1},
    {.name = "MLX_CACHE_FRACTION", .why = MEMORY, .min = 0, .max = 1},
    {.name = "MLX_WIRED_LIMIT_GB", .why = MEMORY, .min = 0, .max = 1e6},
    {.name = "MLX_PRESSURE_WARN", .why = MEMORY, .min = 0, .max = 1},
    {.name = "MLX_PRESSURE_CRITICAL", .why = MEMORY, .min = 0, .max = 1},
    {.name = "OVERRIDE_MEMORY_MB", .why = MEMORY, .min = 0, .max = 1e9},
    {.name = "QWEN3_ENABLE_THINKING",
     .why = "requests set it: chat_template_kwargs.enable_thinking"},
    {.name = "--continuous-batching", .why = "requests are always batched continuously"},
    {.name = "--use-paged-cache", .why = "the KV cache always consists of blocks"},
    {.name = "--enable-prefix-cache", .why = "the prefix cache is always on"},
    {.name = "--trust-remote-code", .why = "code that comes with a model is never run"},
    {.name = "HOST", .why = TOO_COMMON "; use HTTP_HOST or API_HOST", .quiet = true},
    {.name = "PORT", .why = TOO_COMMON "; use HTTP_PORT or API_PORT", .quiet = true},
    {.name = "PYTHONPATH", .why = "there is no Python here", .quiet = true},
    {.name = "DYLD_LIBRARY_PATH", .why = "the system's loader reads it", .quiet = true},
    {.name = "CUDA_VISIBLE_DEVICES", .why = "this program computes on CPUs", .quiet = true},
    {.name = "COLUMNS", .why = "the size is read from the terminal", .quiet = true},
    {.name = "LINES", .why = "the size is read from the terminal", .quiet = true},
};

#endif
